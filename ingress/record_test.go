package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// objects keeps what it is given; only its addresses matter here.
type objects map[string][]byte

func (o objects) Put(_ context.Context, data []byte) (string, error) {
	ref := "sha256:" + events.HexSHA256(data)
	o[ref] = data
	return ref, nil
}

func (o objects) Get(_ context.Context, ref string) ([]byte, error) { return o[ref], nil }

// A body of several messages makes several events with ids of their own, keeps
// the body once, and never lets a reading pass as our own.
func TestEventsOf(t *testing.T) {
	t.Parallel()
	d, err := provider.Builtin("generic")
	if err != nil {
		t.Fatal(err)
	}
	desc, err := provider.Parse("generic.yaml", d)
	if err != nil {
		t.Fatal(err)
	}
	pr, err := provider.New(desc, provider.Settings{Name: "generic", BaseURL: "https://api.example"})
	if err != nil {
		t.Fatal(err)
	}
	store := objects{}
	in := &Ingress{cfg: Config{Objects: store, Now: func() time.Time { return time.Unix(1, 0) }}}
	m := message{provider: pr, account: "a:b", body: []byte(strings.Repeat("x", 40<<10)), reference: &events.Reference{Operation: "op"}}
	large, err := events.JSONBlob([]byte(`"` + strings.Repeat("r", events.InlineMaxBytes) + `"`))
	if err != nil {
		t.Fatal(err)
	}
	hooks := []provider.Webhook{
		{Remote: "1", DedupKey: "k", Reading: &events.Reading{State: events.RemoteSucceeded, Authoritative: true, Source: events.SourcePoll, Result: &large}},
		{Ignored: true},
		{Remote: "2", DedupKey: "k", Unrecognised: true, Word: strings.Repeat("ü", 100)},
	}
	batch, err := in.eventsOf(t.Context(), m, hooks)
	if err != nil {
		t.Fatal(err)
	}
	if len(batch) != 2 {
		t.Fatalf("%d events, want 2", len(batch))
	}
	prefix := "wh:generic:" + events.HashID("a:b") + ":k:"
	if batch[0].ID != prefix+"0" || batch[1].ID != prefix+"2" {
		t.Errorf("ids = %s, %s, want %s…", batch[0].ID, batch[1].ID, prefix)
	}
	o := batch[0].Data.(*events.Observed)
	if o.Reading.Authoritative || o.Reading.Source != events.SourceWebhook {
		t.Errorf("reading = %+v: a webhook never confirms", o.Reading)
	}
	if o.Reading.Result.Ref == "" || o.Reading.Result.Inline != nil || o.Raw.Ref == "" {
		t.Errorf("result and body are not in the object store: %+v %+v", o.Reading.Result, o.Raw)
	}
	if hooks[0].Reading.Result.Inline == nil || !hooks[0].Reading.Authoritative {
		t.Error("the provider's own reading was changed")
	}
	u := batch[1].Data.(*events.Unrecognised)
	if len(u.Status) > wordMaxBytes || !strings.HasPrefix(u.Status, "üü") || u.Source != events.SourceWebhook {
		t.Errorf("unrecognised = %+v", u)
	}
	for _, e := range batch {
		if _, err := events.Encode(e); err != nil {
			t.Errorf("%s: %v", e.ID, err)
		}
	}
}

// ledger answers each event of a batch by its own error.
type ledger struct {
	Ledger
	errs map[string]error
}

func (l ledger) Record(_ context.Context, e events.Event) (events.Appended, error) {
	return events.Appended{Outcome: events.Stored}, l.errs[e.ID]
}

// One event that is not stored is enough for the whole body to be refused, and
// an outage is never mistaken for a message that can be given up.
func TestRecordAll(t *testing.T) {
	t.Parallel()
	batch := make([]events.Event, 100)
	for i := range batch {
		batch[i].ID = strings.Repeat("i", i+1)
	}
	l := ledger{errs: map[string]error{}}
	in := &Ingress{cfg: Config{Ledger: l}}
	if o, err := in.recordAll(t.Context(), "p", batch); err != nil || o != webhookAccepted {
		t.Errorf("outcome = %s, %v", o, err)
	}
	l.errs[batch[3].ID] = events.ErrInvalidEvent
	if _, err := in.recordAll(t.Context(), "p", batch); !errors.Is(err, events.ErrInvalidEvent) {
		t.Errorf("error = %v, want invalid", err)
	}
	l.errs[batch[77].ID] = events.ErrUnavailable
	if _, err := in.recordAll(t.Context(), "p", batch); !errors.Is(err, events.ErrUnavailable) || errors.Is(err, events.ErrInvalidEvent) {
		t.Errorf("error = %v, want unavailable", err)
	}
}

// A fault of ours in reading an intent refuses that intent and takes nothing
// else down.
func TestGuarded(t *testing.T) {
	t.Parallel()
	var nothing map[string]json.RawMessage
	err := guarded("op", func() error { nothing["x"] = nil; return nil })
	var refused *events.RefusedError
	if !errors.As(err, &refused) || refused.Operation != "op" || refused.Reason == "" {
		t.Errorf("error = %v, want a refusal", err)
	}
}

// The id of a message is a name: the same for every delivery, another for every
// message, purpose and stream.
func TestMessageIDs(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	seen := map[string]bool{}
	for _, m := range []IntentMessage{
		{Seq: 1, At: at, StreamCreated: at}, {Seq: 2, At: at, StreamCreated: at}, {Seq: 1, At: at, StreamCreated: at.Add(1)},
	} {
		for _, purpose := range []string{"operation", "inbox"} {
			a, err := m.ulid(purpose)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := m.ulid(purpose)
			if a != b || seen[a] || len(a) != 26 {
				t.Errorf("%s of %+v: %s and %s", purpose, m, a, b)
			}
			seen[a] = true
		}
	}
	if _, err := (IntentMessage{}).ulid("inbox"); err != nil {
		t.Errorf("a message without time: %v", err)
	}
}
