package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limits of the group commit.
const (
	batchFrom    = 30   // fewer waiting messages are published singly: a batch has a fixed cost
	batchMax     = 1000 // the server's limit
	queueMax     = 4096 // callers beyond it wait
	recentMax    = 8192 // acknowledged ids that are remembered
	singleFlight = 64   // single publishes at a time
	eventIDMax   = 512  // of events.Encode
)

// errClosed is what waits when the store closes.
var errClosed = errors.New("store is closed")

// pending is one event that waits for its acknowledgement.
type pending struct {
	ctx     context.Context
	subject string
	id      string
	body    []byte
	done    chan result
}

type result struct {
	seq       uint64
	duplicate bool
	err       error
}

func (p *pending) msg() *nats.Msg {
	m := nats.NewMsg(p.subject)
	m.Data = p.body
	m.Header.Set(jetstream.MsgIDHeader, p.id)
	m.Header.Set("Content-Type", "application/cloudevents+json")
	return m
}

// committer groups evidence: on one node every message is an fsync, and a batch
// is one. It takes what waits and never lingers.
type committer struct {
	s     *Store
	queue chan *pending
	sem   chan struct{}
	done  chan struct{} // closed when run ends

	mu     sync.Mutex
	recent map[string]uint64 // id to sequence
	order  []string          // of recent, oldest first
}

func newCommitter(s *Store) *committer {
	return &committer{s: s, queue: make(chan *pending, queueMax), sem: make(chan struct{}, singleFlight), done: make(chan struct{}), recent: map[string]uint64{}}
}

// submit waits for one try; the caller tries again.
func (c *committer) submit(ctx context.Context, p *pending) result {
	select {
	case c.queue <- p:
	case <-ctx.Done():
		return result{err: context.Cause(ctx)}
	case <-c.done:
		return result{err: errClosed}
	}
	select {
	case r := <-p.done:
		return r
	case <-c.done:
		select { // the answer may have come just before
		case r := <-p.done:
			return r
		default:
			return result{err: errClosed}
		}
	case <-ctx.Done():
		// The committer still answers into the buffered channel; nobody reads it.
		return result{err: context.Cause(ctx)}
	}
}

// run commits until the context ends. What waits then is told by done.
func (c *committer) run(ctx context.Context) {
	defer close(c.done)
	var singles sync.WaitGroup
	defer singles.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-c.queue:
			group := c.fill(first)
			if len(group) <= batchFrom || c.s.cfg.Replicas > 1 {
				for _, p := range group {
					c.sem <- struct{}{}
					singles.Add(1)
					go func() {
						defer func() { <-c.sem; singles.Done() }()
						c.single(p)
					}()
				}
				continue
			}
			c.batch(ctx, group)
		}
	}
}

func (c *committer) fill(first *pending) []*pending {
	group := []*pending{first}
	for len(group) < batchMax {
		select {
		case p := <-c.queue:
			group = append(group, p)
		default:
			return group
		}
	}
	return group
}

func (c *committer) single(p *pending) {
	ack, err := c.s.publish(p.ctx, p.msg())
	if err == nil {
		c.remember(p.id, ack.Seq)
	}
	p.done <- result{seq: ack.Seq, duplicate: ack.Duplicate, err: err}
}

// batch commits a group as one atomic batch. One duplicate refuses a whole
// batch, so ids that are known are answered from memory, and a refused batch is
// published singly once.
func (c *committer) batch(ctx context.Context, group []*pending) {
	fresh := group[:0:0]
	inBatch := map[string]bool{}
	var again []*pending
	for _, p := range group {
		switch seq, known := c.known(p.id); {
		case known:
			p.done <- result{seq: seq, duplicate: true}
		case inBatch[p.id]:
			again = append(again, p)
		default:
			inBatch[p.id] = true
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > 0 {
		msgs := make([]*nats.Msg, len(fresh))
		for i, p := range fresh {
			msgs[i] = p.msg()
		}
		last, err := c.s.publishBatch(ctx, msgs)
		for i, p := range fresh {
			if err == nil {
				seq := last - uint64(len(fresh)-1-i)
				c.remember(p.id, seq)
				p.done <- result{seq: seq}
			} else {
				again = append(again, p)
			}
		}
	}
	c.singly(again)
}

func (c *committer) singly(group []*pending) {
	var wg sync.WaitGroup
	for _, p := range group {
		c.sem <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-c.sem; wg.Done() }()
			c.single(p)
		}()
	}
	wg.Wait()
}

func (c *committer) known(id string) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seq, ok := c.recent[id]
	return seq, ok
}

func (c *committer) remember(id string, seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.recent[id]; ok {
		return
	}
	c.recent[id] = seq
	c.order = append(c.order, id)
	if len(c.order) > recentMax {
		delete(c.recent, c.order[0])
		c.order = c.order[1:]
	}
}

// publishBatch stores the messages all or nothing and returns the sequence of
// the last; the others stand right before it.
func (s *Store) publishBatch(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	id, err := randomHex(16)
	if err != nil {
		return 0, err
	}
	for i, m := range msgs {
		m.Header.Set("Nats-Batch-Id", id)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i < len(msgs)-1 {
			if err := s.nc.PublishMsg(m); err != nil {
				return 0, err
			}
			continue
		}
		m.Header.Set("Nats-Batch-Commit", "1")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*tryTimeout)
	defer cancel()
	reply, err := s.nc.RequestMsgWithContext(ctx, msgs[len(msgs)-1])
	if err != nil {
		return 0, err
	}
	ack, err := parseAck(reply.Data)
	if err != nil {
		return 0, err
	}
	if ack.Count != len(msgs) {
		return 0, fmt.Errorf("batch of %d was acknowledged as %d", len(msgs), ack.Count)
	}
	return ack.Seq, nil
}
