package ingress

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/pawl-dev/pawl/events"
)

// actorIngress is the actor of what the doors write by themselves.
const actorIngress = "ingress"

// raw keeps a body whole: inside the event up to inlineMax bytes, in the object
// store beyond. The object is durable before the event that refers to it.
func (in *Ingress) raw(ctx context.Context, body []byte, inlineMax int) (events.Raw, error) {
	if len(body) <= min(inlineMax, events.RawMaxBytes) {
		return events.NewRaw(body), nil
	}
	ref, err := in.cfg.Objects.Put(ctx, body)
	if err != nil {
		return events.Raw{}, fmt.Errorf("put body: %w", err)
	}
	return events.Raw{Ref: ref, SHA256: events.HexSHA256(body), Size: int64(len(body))}, nil
}

// budget bounds the bytes that are held at a time.
type budget struct {
	max  int64
	held atomic.Int64
}

// take reserves n bytes and reports whether they were there.
func (b *budget) take(n int64) bool {
	if b.held.Add(n) > b.max {
		b.held.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.held.Add(-n) }
