package events

import (
	"testing"
	"time"
)

// Without it, ten thousand operations that wait for one wrong key would each send
// it once more, or each be told that the provider refused them.
func TestHeldAccount(t *testing.T) {
	t.Parallel()
	s := tell(t, "prepare status token cancel start_by=1h; hold credentials")
	a, err := s.view.Account(testProvider, AccountSubject(testProvider, DefaultAccount).Key)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Hold(); got != "credentials" {
		t.Errorf("held: want credentials, got %q", got)
	}
	held := Memory{Held: true}
	if got := Next(s.job(testOp), Policy{}, s.now, held); got.Kind != ActDeadline || got.Clock != ClockStartBy {
		t.Errorf("prepared and held: want only its limit due, got %+v", got)
	}
	// What must not wait does not: reads notice when it is over.
	s = tell(t, "prepare status token cancel; attempt 1; accept 1 j1; cancel")
	if got := Next(s.job(testOp), Policy{}, s.now, held); got.Kind != ActPoll {
		t.Errorf("cancel requested and held: want a poll, got %+v", got)
	}
	s = tell(t, "hold credentials; +1m release; webhook j1 running")
	if a, _ = s.view.Account(testProvider, AccountSubject(testProvider, DefaultAccount).Key); a.Hold() != "" {
		t.Errorf("released: want no hold, got %q", a.Hold())
	}
	// A hold that is older than the release, folded after it, changes nothing.
	if _, v, err := Apply(s.view, s.log[0]); err != nil || v != VerdictStale || a.Hold() != "" {
		t.Errorf("folded again: want stale, got %s (%v), held %q", v, err, a.Hold())
	}
	b, err := EncodeRecord(a)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeAccount(b)
	if err != nil || *back != *a {
		t.Errorf("record: want %+v, got %+v (%v)", a, back, err)
	}
}

// Without the watch, a success that the provider takes back the next day would
// stand for ever; without its end, every operation would be read for ever.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := tell(t, doneS)
	p := Policy{WatchWindow: 7 * 24 * time.Hour}
	polled, reads := s.now, 0
	for range 1000 {
		a := Next(s.job(testOp), p, polled, Memory{Polled: polled})
		if a.Kind == ActNone {
			break
		}
		if a.Kind != ActPoll || !a.At.After(polled) {
			t.Fatalf("read %d: want a later poll, got %+v after %s", reads, a, polled)
		}
		polled = a.At
		reads++
	}
	if reads < 8 || reads > 60 || polled.Before(s.now.Add(5*24*time.Hour)) {
		t.Errorf("a week of watching: want between 8 and 60 reads up to its end, got %d up to %s", reads, polled.Sub(s.now))
	}
	if a := Next(s.job(testOp), Policy{}, s.now, Memory{}); a.Kind != ActNone {
		t.Errorf("no watch: want nothing owed, got %+v", a)
	}
}

// Without an archive that stands for the history, a purged operation would be
// announced again, or sent again when its intent comes once more.
func TestArchivedAlone(t *testing.T) {
	t.Parallel()
	s := tell(t, doneS+"; effect-done mail; effect-dead stock")
	if _, err := tell(t, boundS).job(testOp).Archive(1, "", ""); err == nil {
		t.Error("an operation at work: want it refused")
	}
	if _, err := tell(t, doneS).job(testOp).Archive(1, "", ""); err == nil {
		t.Error("an operation that owes effects: want it refused")
	}
	if v, err := s.do("archive"); err != nil || v != VerdictApplied {
		t.Fatalf("archive: %s, %v", v, err)
	}
	whole := s.job(testOp)
	alone := NewMemoir()
	if _, _, err := Apply(alone, s.log[len(s.log)-1]); err != nil {
		t.Fatal(err)
	}
	j, _ := alone.Job(testProvider, testOp)
	if j.State != whole.State || j.Outcome != whole.Outcome || j.OpSeq != whole.OpSeq || j.Prepared.Fingerprint != whole.Prepared.Fingerprint {
		t.Errorf("folded alone: want %s %s at %d, got %s %s at %d", whole.State, whole.Outcome, whole.OpSeq, j.State, j.Outcome, j.OpSeq)
	}
	if a := Next(j, Policy{}, s.now, Memory{}); a.Kind != ActNone || len(j.Owed()) > 0 || j.PublicOutcome() != OutcomeConfirmed {
		t.Errorf("folded alone: want nothing owed and confirmed, got %+v, %v, %s", a, j.Owed(), j.PublicOutcome())
	}
	if e := j.effect("mail", 1); e == nil || !e.Done.Set() {
		t.Errorf("folded alone: want the effect done, got %+v", e)
	}
}
