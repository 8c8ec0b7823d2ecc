package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// loadTimeout bounds one read of the bucket or the stream inside a fold.
const loadTimeout = 10 * time.Second

// view is the fold's window on the bucket: records are loaded once, changed in
// memory and written at the commit. Only one projector writes, so a cached
// record stays true until a commit is refused.
type view struct {
	ledger  Ledger
	bucket  events.Bucket
	records map[string]*record
	dirty   map[string]*record
	current events.Recorded // the event that is being folded
}

type record struct {
	job      *events.Job // one of the three is set
	remote   *events.Remote
	account  *events.Account
	revision uint64 // 0: not in the bucket yet
}

func newView(l Ledger, b events.Bucket) *view {
	v := &view{ledger: l, bucket: b}
	v.clear()
	return v
}

func (v *view) clear() {
	v.records = map[string]*record{}
	v.dirty = map[string]*record{}
}

// Job implements events.View.
func (v *view) Job(p events.Provider, op events.OperationID) (*events.Job, error) {
	key := events.JobBucketKey(p, op)
	if r := v.records[key]; r != nil {
		return r.job, nil
	}
	value, rev, err := v.load(key)
	if errors.Is(err, events.ErrNotFound) {
		r := &record{job: events.NewJob(p, op)}
		v.records[key] = r
		return r.job, v.refold(r.job)
	}
	if err != nil {
		return nil, err
	}
	j, err := events.DecodeJob(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	v.records[key] = &record{job: j, revision: rev}
	return j, nil
}

// Remote implements events.View.
func (v *view) Remote(p events.Provider, key events.JobKey) (*events.Remote, error) {
	k := events.RemoteBucketKey(p, key)
	if r := v.records[k]; r != nil {
		return r.remote, nil
	}
	value, rev, err := v.load(k)
	if errors.Is(err, events.ErrNotFound) {
		r := &record{remote: events.NewRemote(p, key)}
		v.records[k] = r
		return r.remote, nil
	}
	if err != nil {
		return nil, err
	}
	remote, err := events.DecodeRemote(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
	}
	v.records[k] = &record{remote: remote, revision: rev}
	return remote, nil
}

// Account implements events.View.
func (v *view) Account(p events.Provider, key string) (*events.Account, error) {
	k := events.AccountBucketKey(p, key)
	if r := v.records[k]; r != nil {
		return r.account, nil
	}
	value, rev, err := v.load(k)
	if errors.Is(err, events.ErrNotFound) {
		r := &record{account: events.NewAccount(p, key)}
		v.records[k] = r
		return r.account, nil
	}
	if err != nil {
		return nil, err
	}
	account, err := events.DecodeAccount(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
	}
	v.records[k] = &record{account: account, revision: rev}
	return account, nil
}

func (v *view) load(key string) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	return v.bucket.Load(ctx, key)
}

// refold brings back an operation that the bucket does not hold although the
// stream does: everything on its subject before the current event, and the
// public copies of its settlements. Without the copies it would announce for
// ever what is announced, and owe no effect.
func (v *view) refold(j *events.Job) error {
	if _, ok := v.current.Event.Data.(*events.Prepared); ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	recs, err := v.ledger.Read(ctx, events.OperationSubject(j.Provider, j.Operation), 0, events.HistoryLimit)
	if err != nil {
		return fmt.Errorf("refold %s: %w", j.Operation, err)
	}
	for _, rec := range recs {
		if rec.Seq >= v.current.Seq {
			break
		}
		again := []events.Recorded{rec}
		if d, ok := rec.Event.Data.(*events.Settled); ok {
			public, err := v.ledger.Read(ctx, events.SettledSubject(j.Provider, j.Operation, d.G), 0, 1)
			if err != nil {
				return fmt.Errorf("refold %s: %w", j.Operation, err)
			}
			again = append(again, public...)
		}
		for _, rec := range again {
			if rec.Seq >= v.current.Seq {
				continue // it comes by itself
			}
			touched, _, err := events.Apply(v, rec)
			if err != nil {
				return fmt.Errorf("refold %s: %w", j.Operation, err)
			}
			v.mark(touched)
		}
	}
	return nil
}

func (v *view) mark(t events.Touched) {
	if t.Job != nil {
		v.markJob(t.Job)
	}
	for _, j := range t.Others {
		v.markJob(j)
	}
	if r := t.Remote; r != nil {
		key := events.RemoteBucketKey(r.Provider, r.Ref.Key)
		v.dirty[key] = v.records[key]
	}
	if a := t.Account; a != nil {
		key := events.AccountBucketKey(a.Provider, a.Key)
		v.dirty[key] = v.records[key]
	}
}

func (v *view) markJob(j *events.Job) {
	key := events.JobBucketKey(j.Provider, j.Operation)
	v.dirty[key] = v.records[key]
}

func (v *view) dirtyKeys() int { return len(v.dirty) }

// changes encodes what changed, in a stable order. plan is called for each job.
func (v *view) changes(plan func(*events.Job)) ([]events.Change, error) {
	out := make([]events.Change, 0, len(v.dirty))
	for key, r := range v.dirty {
		var value []byte
		var err error
		switch {
		case r.job != nil:
			plan(r.job)
			value, err = events.EncodeRecord(r.job)
		case r.remote != nil:
			value, err = events.EncodeRecord(r.remote)
		default:
			value, err = events.EncodeRecord(r.account)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		out = append(out, events.Change{Key: key, Value: value, Revision: r.revision})
	}
	slices.SortFunc(out, func(a, b events.Change) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return out, nil
}

// committed takes over the new revisions. A cache that has grown too large is
// dropped whole: the bucket has it all.
func (v *view) committed(changes []events.Change, revs []uint64) {
	for i, c := range changes {
		v.dirty[c.Key].revision = revs[i]
	}
	v.dirty = map[string]*record{}
	if len(v.records) > cacheKeys {
		v.records = map[string]*record{}
	}
}
