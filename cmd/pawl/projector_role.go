package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/projector"
	"github.com/pawl-dev/pawl/streams"
)

// projectorRole runs projectors one after the other and tells who has to stop
// when the ledger has lost history.
type projectorRole struct {
	s       settings
	metrics *projector.Metrics

	mu      sync.Mutex
	current *projector.Projector
	halt    map[int]func()
	next    int
}

func newProjectorRole(s settings, m *projector.Metrics) *projectorRole {
	return &projectorRole{s: s, metrics: m, halt: map[int]func(){}}
}

// onHalt registers what to stop; the returned function unregisters it.
func (p *projectorRole) onHalt(f func()) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.next
	p.next++
	p.halt[id] = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.halt, id)
	}
}

func (p *projectorRole) haltAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.halt {
		f()
	}
}

func (p *projectorRole) setLag(last uint64) {
	p.mu.Lock()
	c := p.current
	p.mu.Unlock()
	if c == nil {
		return
	}
	if applied := c.Applied(); last > applied {
		p.metrics.SetLag(last - applied)
	} else {
		p.metrics.SetLag(0)
	}
}

func (p *projectorRole) run(ctx context.Context) error {
	owner := make([]byte, 8)
	if _, err := rand.Read(owner); err != nil {
		return err
	}
	c := p.projector(hex.EncodeToString(owner))
	p.mu.Lock()
	p.current = c
	p.mu.Unlock()
	return c.Run(ctx)
}

func (p *projectorRole) projector(owner string) *projector.Projector {
	return projector.New(projector.Config{
		Ledger: p.s.Store, Bucket: p.s.Store.Bucket(), Owner: owner, Now: now,
		Open: func(ctx context.Context, after uint64) (events.Tail, error) { return p.s.Store.Tail(ctx, after) },
		Policy: func(name events.Provider) events.Policy {
			if pr := p.s.Providers[name]; pr != nil {
				return pr.Policy()
			}
			return events.Policy{}.WithDefaults()
		},
		Park:   p.park,
		Logger: p.s.Logger.With("part", "projector"), Metrics: p.metrics,
	})
}

// park notes a broken event in the inbox, once for ever: its place there is made
// from the ledger and the sequence.
func (p *projectorRole) park(ctx context.Context, rec events.Recorded) error {
	h := sha256.Sum256([]byte(p.s.Store.LedgerID() + ":" + strconv.FormatUint(rec.Seq, 10)))
	id, err := events.NewULID(time.Unix(0, 0), bytes.NewReader(h[:]))
	if err != nil {
		return err
	}
	of := rec.Event.Subject.Provider
	if of == "" {
		of = "unknown" // as for every address that cannot be read
	}
	reason := rec.Err.Error()
	_, err = p.s.Store.Decide(ctx, 0, events.Event{
		ID: "pk:" + strconv.FormatUint(rec.Seq, 10), Subject: events.InboxSubject(of, id), Time: now().UTC(), Actor: "projector", Claim: id,
		Data: &events.EventParked{Seq: rec.Seq, Reason: strings.ToValidUTF8(reason[:min(len(reason), parkedReasonMax)], "")},
	})
	return err
}

// parkedReasonMax bounds the reason of a parked event, in bytes.
const parkedReasonMax = 512

// runProjector keeps a projector running. When the ledger has lost history it
// halts every outgoing call, says so, and leaves the API readable.
func (a *app) runProjector(ctx context.Context) error {
	for {
		err := a.s.Store.Lead(ctx, "projector.main", a.projector.run)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if a.halts(err) {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		a.s.Logger.Warn("projector stopped, starting again", "err", err)
		if err := sleep(ctx, restartPause); err != nil {
			return err
		}
	}
}

// halts stops every outgoing call, for good, if an error says that bucket and
// stream do not belong together.
func (a *app) halts(err error) bool {
	if !errors.Is(err, projector.ErrLedgerRegressed) && !errors.Is(err, streams.ErrLedgerRegressed) && !errors.Is(err, projector.ErrFoldVersion) {
		return false
	}
	reason := err.Error()
	a.halted.Store(&reason)
	a.projector.haltAll()
	a.s.Logger.Error("halted: no call leaves until a person has looked", "err", err)
	return true
}
