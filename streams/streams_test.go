package streams_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// server starts an embedded server on a directory and opens its store.
func server(t testing.TB, dir string, cfg streams.Config) (*streams.Embedded, *streams.Store) {
	t.Helper()
	ns, err := streams.StartEmbedded(streams.EmbeddedConfig{Dir: dir, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ns.Dial(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := streams.Open(t.Context(), nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return ns, s
}

func open(t testing.TB) *streams.Store {
	t.Helper()
	ns, s := server(t, t.TempDir(), streams.Config{})
	t.Cleanup(func() { _ = s.Close(); ns.Shutdown() })
	return s
}

func prepared(p events.Provider, op events.OperationID, claim string) events.Event {
	return events.Event{
		ID: "p:" + string(op), Subject: events.OperationSubject(p, op), Time: time.Unix(1_700_000_000, 0).UTC(), Claim: claim,
		Data: &events.Prepared{
			Intent:      events.Intent{OperationID: op, Provider: p, Account: events.DefaultAccount, Input: json.RawMessage(`{"a":1}`)},
			Fingerprint: "sha256:00", Token: string(op), RequestSHA256: "00",
		},
	}
}

func attempt(p events.Provider, op events.OperationID, n int, claim string) events.Event {
	at := time.Unix(1_700_000_000, 0).UTC()
	return events.Event{
		ID: fmt.Sprintf("ca:%s:%d", op, n), Subject: events.OperationSubject(p, op), Time: at, Claim: claim,
		Data: &events.AttemptStarted{N: n, SendBy: at, LeaseUntil: at.Add(time.Second)},
	}
}

func observed(p events.Provider, remote, id string, state events.RemoteState) events.Event {
	ref := events.RemoteRef{ID: remote, Account: events.DefaultAccount, Key: events.MakeJobKey(p, events.DefaultAccount, remote)}
	return events.Event{
		ID: id, Subject: events.JobSubject(p, ref.Key), Time: time.Unix(1_700_000_000, 0).UTC(),
		Data: &events.Observed{Remote: ref, Reading: events.Reading{State: state, Source: events.SourceWebhook}},
	}
}

func decide(t *testing.T, s *streams.Store, expected uint64, e events.Event) events.Appended {
	t.Helper()
	got, err := s.Decide(t.Context(), expected, e)
	if err != nil {
		t.Fatalf("decide %s: %v", e.ID, err)
	}
	return got
}

// Without the fence two workers send the same attempt.
func TestDecideHasOneWinner(t *testing.T) {
	t.Parallel()
	s := open(t)
	p := decide(t, s, 0, prepared("generic", "op_1", "A"))
	var wg sync.WaitGroup
	outcomes := make([]events.Appended, 16)
	for i := range outcomes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			outcomes[i], _ = s.Decide(t.Context(), p.Seq, attempt("generic", "op_1", 1, fmt.Sprint("claim", i)))
		}()
	}
	wg.Wait()
	stored := 0
	for _, o := range outcomes {
		switch o.Outcome {
		case events.Stored:
			stored++
		case events.Fenced:
			if o.Winner == nil || o.Winner.Event.ID != "ca:op_1:1" {
				t.Errorf("winner of a fenced decision: want the stored attempt, got %+v", o.Winner)
			}
		default:
			t.Errorf("outcome: want stored or fenced, got %v", o.Outcome)
		}
	}
	if stored != 1 {
		t.Errorf("decisions that stand: want 1, got %d", stored)
	}
}

// Without reading back, a lost answer makes a decision that stands look lost,
// or makes it stand twice.
func TestDecideAgainAfterALostAnswer(t *testing.T) {
	t.Parallel()
	s := open(t)
	p := decide(t, s, 0, prepared("generic", "op_1", "A"))
	e := attempt("generic", "op_1", 1, "mine")
	first := decide(t, s, p.Seq, e)
	// Evidence lands after it: the last message of the subject is not ours.
	ev := events.Event{ID: "co:op_1:1:amb:timeout", Subject: e.Subject, Time: e.Time, Data: &events.Ambiguous{N: 1, Class: "timeout"}}
	if _, err := s.Record(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	again := decide(t, s, p.Seq, e)
	if again.Outcome != events.Stored || again.Seq != first.Seq {
		t.Errorf("same bytes again: want stored at %d, got %v at %d", first.Seq, again.Outcome, again.Seq)
	}
	other := decide(t, s, p.Seq, attempt("generic", "op_1", 1, "theirs"))
	if other.Outcome != events.Fenced || other.Seq != first.Seq {
		t.Errorf("another claim: want fenced by %d, got %v at %d", first.Seq, other.Outcome, other.Seq)
	}
}

// Without the wildcard two providers take one operation id, which is one token.
func TestPreparedIsUniqueOverProviders(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := decide(t, s, 0, prepared("generic", "op_1", "A"))
	got := decide(t, s, 0, prepared("other", "op_1", "B"))
	if got.Outcome != events.Fenced || got.Seq != first.Seq || got.Winner.Event.Subject.Provider != "generic" {
		t.Errorf("same id under another provider: want fenced by %d of generic, got %+v", first.Seq, got)
	}
	subject, rec, err := s.FindOperation(t.Context(), "op_1")
	if err != nil || subject.Provider != "generic" || rec.Seq != first.Seq {
		t.Errorf("find: want generic at %d, got %v at %d (%v)", first.Seq, subject, rec.Seq, err)
	}
	if _, _, err := s.FindOperation(t.Context(), "op_2"); !errors.Is(err, events.ErrNotFound) {
		t.Errorf("find nothing: want ErrNotFound, got %v", err)
	}
}

// Without equal announcements two reconcilers that derive the same settlement
// fence each other for ever.
func TestSameAnnouncementStands(t *testing.T) {
	t.Parallel()
	s := open(t)
	e := events.Event{
		ID: "st:op_1:1", Subject: events.SettledSubject("generic", "op_1", 1), Time: time.Unix(1, 0).UTC(), Claim: "A",
		Data: &events.Settled{G: 1, State: events.StateSucceeded, Outcome: events.OutcomeConfirmed, Evidence: []uint64{1}},
	}
	first := decide(t, s, 0, e)
	e.Claim = "B"
	if again := decide(t, s, 0, e); again.Outcome != events.Stored || again.Seq != first.Seq {
		t.Errorf("same announcement by another claim: want stored at %d, got %+v", first.Seq, again)
	}
	e.Data = &events.Settled{G: 1, State: events.StateFailed, Outcome: events.OutcomeFailed, Evidence: []uint64{1}}
	if other := decide(t, s, 0, e); other.Outcome != events.Fenced {
		t.Errorf("another state: want fenced, got %v", other.Outcome)
	}
}

// Without the content check one id on two messages loses the second with a
// success.
func TestRecordDuplicateAndCollision(t *testing.T) {
	t.Parallel()
	s := open(t)
	record := func(e events.Event) events.Appended {
		t.Helper()
		got, err := s.Record(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	e := observed("generic", "job-1", "wh:1", events.RemoteRunning)
	first := record(e)
	e.Time = e.Time.Add(time.Hour) // a receipt time is not content
	if got := record(e); got.Outcome != events.Duplicate || got.Seq != first.Seq {
		t.Errorf("repeat: want duplicate of %d, got %+v", first.Seq, got)
	}
	got := record(observed("generic", "job-2", "wh:1", events.RemoteFailed))
	if got.Outcome != events.Collision || got.Seq == first.Seq {
		t.Errorf("other content under the id: want a collision stored beside it, got %+v", got)
	}
	if again := record(observed("generic", "job-2", "wh:1", events.RemoteFailed)); again.Outcome != events.Duplicate || again.Seq != got.Seq {
		t.Errorf("repeat of the other: want duplicate of %d, got %+v", got.Seq, again)
	}
}

// Without group commit that counts its members right, an acknowledgement names
// another event's sequence.
func TestRecordManyAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	const n = 2000
	seqs := make([]uint64, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			// Every id is sent twice, so that duplicates meet batches.
			got, err := s.Record(t.Context(), observed("generic", fmt.Sprint("job-", i/2), fmt.Sprint("wh:", i/2), events.RemoteRunning))
			if err != nil {
				t.Error(err)
			}
			seqs[i] = got.Seq
		}()
	}
	wg.Wait()
	for i := range n {
		if seqs[i] != seqs[i/2*2] {
			t.Fatalf("copies of one event: want one sequence, got %d and %d", seqs[i], seqs[i/2*2])
		}
		rec, err := s.At(t.Context(), seqs[i])
		if err != nil || rec.Event.ID != fmt.Sprint("wh:", i/2) {
			t.Fatalf("sequence %d: want wh:%d, got %q (%v)", seqs[i], i/2, rec.Event.ID, err)
		}
	}
	if last, _ := s.LastSeq(t.Context()); last != n/2+1 {
		t.Errorf("events stored: want %d and the genesis, last sequence is %d", n/2, last)
	}
}

// Without order and completeness the fold is not a function of the stream.
func TestTailIsGaplessOverARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ns, s := server(t, dir, streams.Config{})
	ledger := s.LedgerID()
	for i := range 300 {
		if _, err := s.Record(t.Context(), observed("generic", "job", fmt.Sprint("a", i), events.RemoteRunning)); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	ns.Shutdown()
	ns, s = server(t, dir, streams.Config{})
	defer ns.Shutdown()
	defer func() { _ = s.Close() }()
	if s.LedgerID() != ledger {
		t.Errorf("ledger after a restart: want %s, got %s", ledger, s.LedgerID())
	}
	tail, err := s.Tail(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	go func() {
		for i := range 300 {
			_, _ = s.Record(t.Context(), observed("generic", "job", fmt.Sprint("b", i), events.RemoteRunning))
		}
	}()
	for next := uint64(1); next <= 601; {
		recs, err := tail.Next(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			if rec.Seq != next || rec.Err != nil {
				t.Fatalf("want sequence %d, got %d (%v)", next, rec.Seq, rec.Err)
			}
			next++
		}
	}
	if _, err := s.Tail(t.Context(), 10_000); !errors.Is(err, streams.ErrLedgerRegressed) {
		t.Errorf("a tail beyond the end: want ErrLedgerRegressed, got %v", err)
	}
}

// Without revisions a paused former owner writes over its successor.
func TestBucketCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	b := s.Bucket()
	ctx := t.Context()
	c := events.Checkpoint{LedgerID: s.LedgerID(), Seq: 1, Owner: "A"}
	if _, rev, err := b.Checkpoint(ctx); err != nil || rev != 0 {
		t.Fatalf("checkpoint of an empty bucket: want revision 0, got %d (%v)", rev, err)
	}
	revs, ckpt, err := b.Commit(ctx, []events.Change{{Key: "op.generic.a", Value: []byte(`1`)}}, c, 0)
	if err != nil || len(revs) != 1 {
		t.Fatalf("commit of one: %v %v", revs, err)
	}
	many := make([]events.Change, 500)
	for i := range many {
		many[i] = events.Change{Key: fmt.Sprintf("op.generic.k%d", i), Value: []byte(`2`)}
	}
	many[0] = events.Change{Key: "op.generic.a", Value: []byte(`2`), Revision: revs[0]}
	c.Seq = 2
	revs, next, err := b.Commit(ctx, many, c, ckpt)
	if err != nil {
		t.Fatal(err)
	}
	for i, ch := range many {
		if value, rev, err := b.Load(ctx, ch.Key); err != nil || rev != revs[i] || string(value) != "2" {
			t.Fatalf("%s: want 2 at %d, got %s at %d (%v)", ch.Key, revs[i], value, rev, err)
		}
	}
	// The former owner still believes in the old checkpoint.
	stale := []events.Change{{Key: "op.generic.new", Value: []byte(`3`)}, {Key: "op.generic.new2", Value: []byte(`3`)}}
	if _, _, err := b.Commit(ctx, stale, events.Checkpoint{LedgerID: s.LedgerID(), Seq: 3, Owner: "B"}, ckpt); !errors.Is(err, events.ErrConflict) {
		t.Errorf("commit under an old checkpoint: want ErrConflict, got %v", err)
	}
	if _, _, err := b.Load(ctx, "op.generic.new"); !errors.Is(err, events.ErrNotFound) {
		t.Errorf("a refused commit: want nothing stored, got %v", err)
	}
	if got, rev, err := b.Checkpoint(ctx); err != nil || rev != next || got.Seq != 2 {
		t.Errorf("checkpoint: want 2 at %d, got %d at %d (%v)", next, got.Seq, rev, err)
	}
	watchCtx, stop := context.WithCancel(ctx)
	keys, inits := 0, 0
	err = b.Watch(watchCtx, func(e streams.Entry) error {
		if e.InitDone {
			inits++
			if _, _, err := b.Commit(ctx, []events.Change{{Key: "op.generic.later", Value: []byte(`4`)}}, c, next); err != nil {
				return err
			}
			return nil
		}
		keys++
		if e.Key == "op.generic.later" {
			stop()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || keys < 502 || inits != 1 {
		t.Errorf("watch: want 501 keys, one mark, then the later key; got %d keys, %d marks, %v", keys, inits, err)
	}
}

// Without the lock a second server on one directory corrupts it.
func TestSecondServerSaysWhoHoldsTheDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ns, s := server(t, dir, streams.Config{})
	defer ns.Shutdown()
	defer func() { _ = s.Close() }()
	_, err := streams.StartEmbedded(streams.EmbeddedConfig{Dir: dir, Logger: quiet})
	if !errors.Is(err, streams.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("second server: want ErrLocked naming this process, got %v", err)
	}
}

// Without a readable context file nobody can look at the streams; a file that
// others can read gives them the credentials.
func TestContextFileJoins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ns, s := server(t, dir, streams.Config{})
	defer ns.Shutdown()
	defer func() { _ = s.Close() }()
	info, err := os.Stat(filepath.Join(dir, "nats-context.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("context file: want mode 0600, got %v (%v)", info, err)
	}
	nc, err := streams.Dial(t.Context(), streams.ConnConfig{Context: ns.ContextFile(), Name: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := streams.Dial(t.Context(), streams.ConnConfig{URL: ns.URL(), Name: "stranger"}); err == nil {
		t.Error("a client without credentials was let in")
	}
}

// Without ErrUnavailable somebody acknowledges what a full stream did not take.
func TestFullStreamIsUnavailable(t *testing.T) {
	t.Parallel()
	ns, s := server(t, t.TempDir(), streams.Config{EventsMaxBytes: 64 << 10})
	defer ns.Shutdown()
	defer func() { _ = s.Close() }()
	var stored []uint64
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		var got events.Appended
		if got, err = s.Record(t.Context(), observed("generic", "job", fmt.Sprint("x", i), events.RemoteRunning)); err == nil {
			stored = append(stored, got.Seq)
		}
	}
	if !errors.Is(err, events.ErrUnavailable) {
		t.Fatalf("evidence into a full stream: want ErrUnavailable, got %v", err)
	}
	if _, err := s.Decide(t.Context(), 0, prepared("generic", "op_1", "A")); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("decision into a full stream: want ErrUnavailable, got %v", err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("readiness of a full stream: want ErrUnavailable, got %v", err)
	}
	for _, seq := range stored {
		if _, err := s.At(t.Context(), seq); err != nil {
			t.Fatalf("acknowledged sequence %d: %v", seq, err)
		}
	}
}

// Without redelivery a failed intent is lost; without independence it blocks
// the ones behind it.
func TestIntentsComeAgainAndBlockNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, body := range []string{"bad", "good"} {
		if _, err := s.PublishIntent(t.Context(), "generic", []byte(body), "answers.here"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var order []string
	err := s.ConsumeIntents(ctx, 1, func(_ context.Context, m streams.IntentMessage) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, string(m.Body))
		if m.Provider != "generic" || m.ReplyTo != "answers.here" || m.At.IsZero() || m.StreamCreated.IsZero() {
			t.Errorf("message: %+v", m)
		}
		if string(m.Body) == "bad" && m.Delivered < 3 {
			return errors.New("not now")
		}
		if string(m.Body) == "bad" {
			stop()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "bad good bad bad" {
		t.Errorf("deliveries: want bad good bad bad, got %s", got)
	}
}

// Without a take-over a role ends with its process.
func TestLeadIsTakenOver(t *testing.T) {
	t.Parallel()
	s := open(t)
	first, stop := context.WithCancel(t.Context())
	held := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Lead(first, "projector.main", func(ctx context.Context) error {
			close(held)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-held
	second := make(chan error, 1)
	ran := false
	go func() {
		second <- s.Lead(t.Context(), "projector.main", func(context.Context) error {
			select {
			case <-ended:
				ran = true
			default:
				t.Error("two held the role at once")
			}
			return errors.New("done")
		})
	}()
	stop()
	<-ended
	if err := <-second; err == nil || err.Error() != "done" || !ran {
		t.Errorf("take-over: want the second to run, got %v", err)
	}
}

// Without making the leases again a restart of an external server, which forgets
// streams in memory, leaves every role without a leader for ever.
func TestLeadSurvivesForgottenLeases(t *testing.T) {
	t.Parallel()
	ns, s := server(t, t.TempDir(), streams.Config{})
	defer ns.Shutdown()
	defer func() { _ = s.Close() }()
	nc, err := ns.Dial(t.Context(), "operator")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KV_PAWL_LEASES"); err != nil {
		t.Fatal(err)
	}
	done := errors.New("done")
	if err := s.Lead(t.Context(), "projector.main", func(context.Context) error { return done }); !errors.Is(err, done) {
		t.Errorf("lead without the leases stream: want the role to run, got %v", err)
	}
}

// Without a hash check an object is whatever the disk says.
func TestObjects(t *testing.T) {
	t.Parallel()
	o := open(t).Objects()
	data := []byte(strings.Repeat("x", 300_000))
	for range 2 {
		address, err := o.Put(t.Context(), data)
		if err != nil || address != "sha256:"+events.HexSHA256(data) {
			t.Fatalf("put: %s %v", address, err)
		}
		got, err := o.Get(t.Context(), address)
		if err != nil || string(got) != string(data) {
			t.Fatalf("get: %d bytes, %v", len(got), err)
		}
	}
	if _, err := o.Get(t.Context(), "sha256:00"); !errors.Is(err, events.ErrNotFound) {
		t.Errorf("missing object: want ErrNotFound, got %v", err)
	}
}

// Without refusing reserved subjects a reply address is a way to write events.
func TestReservedSubjectsAreRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, subject := range []string{"pawl.events.generic.op.x", "$JS.API.STREAM.DELETE.PAWL_EVENTS", "$KV.PAWL_JOBS.x", "a.*", "a.>", "", "a b"} {
		if s.Reply(t.Context(), subject, nil) == nil || s.PublishEffect(t.Context(), subject, "id", nil) == nil {
			t.Errorf("subject %q: want a refusal", subject)
		}
	}
	if err := s.PublishEffect(t.Context(), "billing.settled", "id", []byte("{}")); err != nil {
		t.Errorf("plain subject: %v", err)
	}
}

// Without explicit settings a server's default decides what is lost.
func TestTopologyIsAsDesigned(t *testing.T) {
	t.Parallel()
	tp := streams.MakeTopology(streams.Config{})
	e := tp.Events
	if e.Name != "PAWL_EVENTS" || e.Retention != jetstream.LimitsPolicy || e.Discard != jetstream.DiscardNew || !e.DenyDelete || e.DenyPurge ||
		!e.AllowAtomicPublish || e.AllowDirect || e.MaxAge != 0 || e.MaxBytes <= 0 || e.Duplicates != 15*time.Minute {
		t.Errorf("events stream: %+v", e)
	}
	if i := tp.Intents; i.Retention != jetstream.WorkQueuePolicy || i.Discard != jetstream.DiscardNew || i.MaxBytes <= 0 {
		t.Errorf("intents stream: %+v", i)
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, callers := range []int{1, 256} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			s := open(b)
			b.SetParallelism(callers)
			var mu sync.Mutex
			n := 0
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					mu.Lock()
					n++
					id := fmt.Sprint("wh:", b.N, ":", n)
					mu.Unlock()
					if _, err := s.Record(context.Background(), observed("generic", "job", id, events.RemoteRunning)); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
