package reconciler_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

const lookupPart = `
lookup:
  path: "/jobs?token=${token}"
  found: "${body.ids}"
  absent: "${size(body.ids) == 0}"
`

func findable(t *testing.T) string {
	t.Helper()
	data, err := provider.Builtin("generic")
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + lookupPart
}

// A look-up that finds the job saves the second create.
func TestLookupBindsWithoutASecondCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, findable(t))
	w.remote.onCreate = func(rw http.ResponseWriter, _ int, id string) bool { return id != "" && drop(rw) }
	w.remote.onRead = func(rw http.ResponseWriter, _ int, id string) bool {
		if id != "/jobs" {
			return false
		}
		ids, _ := json.Marshal([]string{w.remote.jobs["op_1"]}) // strings always encode
		answer(rw, http.StatusOK, `{"ids":`+string(ids)+`}`)
		return true
	}
	w.reconcile(w.provider)
	w.submit("op_1")
	j := w.settled("op_1", events.StateSucceeded)
	if len(j.Bound) != 1 || j.Bound[0].Via != "lookup" {
		t.Errorf("binding: want one by look-up, got %+v", j.Bound)
	}
	if n := len(w.remote.seen()); n != 1 {
		t.Errorf("creates: want 1, got %d", n)
	}
}

// Where look-ups fail, the token still protects. A failed look-up has to count
// for the attempt that it was made for: were it the same event as the one before,
// the second lost answer would wait five minutes for the third create.
func TestFailedLookupIsFollowedByTheSameToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, findable(t))
	w.remote.onCreate = func(rw http.ResponseWriter, n int, _ string) bool { return n <= 3 && drop(rw) }
	w.remote.onRead = func(rw http.ResponseWriter, _ int, id string) bool {
		if id != "/jobs" {
			return false
		}
		answer(rw, http.StatusServiceUnavailable, `nothing to see`)
		return true
	}
	w.reconcile(w.provider)
	w.submit("op_1")
	j := w.settled("op_1", events.StateSucceeded)
	if len(j.Attempts) != 4 || w.remote.made != 1 {
		t.Errorf("want 4 attempts and one job, got %d and %d", len(j.Attempts), w.remote.made)
	}
}

// A look-up that our own stop cut off says nothing about the provider. Taken for
// a failed one, it would let the next start send again without asking.
func TestStopDuringALookupProvesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, findable(t))
	asked, release := make(chan struct{}), make(chan struct{})
	w.remote.onCreate = func(rw http.ResponseWriter, _ int, id string) bool { return id != "" && drop(rw) }
	w.remote.onRead = func(_ http.ResponseWriter, _ int, _ string) bool {
		close(asked)
		<-release
		return true
	}
	t.Cleanup(func() { close(release) })
	w.reconcile(w.provider)
	w.submit("op_1")
	select {
	case <-asked:
	case <-time.After(timeout):
		t.Fatal("no look-up came")
	}
	w.stop()
	w.running.Wait()
	if got := w.history("op_1")[events.TypeReconFailed]; got != 0 {
		t.Errorf("failed look-ups in the stream: want 0, got %d", got)
	}
}
