// Package streamstest is a stream server in memory: the event stream, the bucket
// of records and the objects, with the faults of the real one on demand. It is
// what the simulator runs on, and one suite of tests holds it and the real
// servers to the same answers.
//
// It is deterministic and not safe for concurrent use: whoever simulates
// concurrency does so by choosing who calls next.
package streamstest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/streams"
)

// ErrNoAnswer is what a caller sees of a server that does not answer: nothing is
// known.
var ErrNoAnswer = errors.New("no answer")

// Server is one installation's streams. The zero value is not usable, see New.
type Server struct {
	// Now is the server's clock.
	Now func() time.Time
	// DedupWindow is how long a deduplication id is remembered.
	DedupWindow time.Duration
	// Replicated: answers to repeats are those of three replicas instead of one.
	Replicated bool
	// Point, when set, is called before and after every effect of every call, with
	// the name of the call. An error before the effect keeps it from taking place;
	// an error after it is a lost answer. It is where a simulation switches,
	// crashes and fails.
	Point func(p Point) error
	// Full refuses every message, as a full disk does.
	Full bool

	messages []streams.Message
	last     map[string]uint64 // by subject
	ids      map[string]dedup
	idOrder  []dedup

	values   map[string]value
	revision uint64
	changes  []change // of the bucket, for feeds

	objects map[string][]byte
}

// Point is a place in a call where something may go wrong.
type Point struct {
	Call  string // publish, first_after, at, load, put, batch, tail, object_put, object_get
	After bool   // the effect has taken place
}

type dedup struct {
	id  string
	seq uint64
	at  time.Time
}

type value struct {
	data     []byte
	revision uint64
}

type change struct {
	revision uint64
	key      string
}

// New returns an empty server.
func New(now func() time.Time) *Server {
	return &Server{
		Now: now, DedupWindow: 15 * time.Minute, last: map[string]uint64{}, ids: map[string]dedup{},
		values: map[string]value{}, objects: map[string][]byte{},
	}
}

// Log returns the event stream under a prefix, seen through a client whose tries
// wait by pause.
func (s *Server) Log(prefix string, pause func(ctx context.Context, n int) bool) streams.Log {
	return streams.Log{Wire: wire{s, pause}, Prefix: prefix}
}

func (s *Server) point(call string, after bool) error {
	if s.Point == nil {
		return nil
	}
	return s.Point(Point{Call: call, After: after})
}

func bySeq(m streams.Message, seq uint64) int { return cmp.Compare(m.Seq, seq) }

// wire implements streams.Wire over the server.
type wire struct {
	s     *Server
	pause func(ctx context.Context, n int) bool
}

// Publish implements streams.Wire.
func (w wire) Publish(ctx context.Context, p streams.Publication) (streams.Ack, error) {
	if err := w.s.point("publish", false); err != nil {
		return streams.Ack{}, err
	}
	ack, err := w.s.publish(p)
	if perr := w.s.point("publish", true); perr != nil {
		return streams.Ack{}, perr
	}
	return ack, err
}

// publish judges and stores one message in the order of the real server: one
// replica judges the fence before it looks for a duplicate; three the other way
// round. A decision carries no id, so that this does not show.
func (s *Server) publish(p streams.Publication) (streams.Ack, error) {
	if s.Full {
		return streams.Ack{}, fmt.Errorf("%w: insufficient storage", streams.ErrRefused)
	}
	s.forget()
	if d, ok := s.ids[p.ID]; ok && p.ID != "" && (p.Fence == nil || s.Replicated) {
		return streams.Ack{Seq: d.seq, Duplicate: true}, nil
	}
	if p.Fence != nil && s.lastOn(p.Fence.Scope) != p.Fence.Seq {
		return streams.Ack{}, errors.New("wrong last sequence") // 10071
	}
	if d, ok := s.ids[p.ID]; ok && p.ID != "" {
		return streams.Ack{Seq: d.seq, Duplicate: true}, nil
	}
	m := streams.Message{Subject: p.Subject, Seq: s.LastSeq() + 1, Time: s.Now(), Data: slices.Clone(p.Body)}
	s.messages = append(s.messages, m)
	s.last[m.Subject] = m.Seq
	if p.ID != "" {
		d := dedup{p.ID, m.Seq, m.Time}
		s.ids[p.ID] = d
		s.idOrder = append(s.idOrder, d)
	}
	return streams.Ack{Seq: m.Seq}, nil
}

// forget drops the ids whose window has passed.
func (s *Server) forget() {
	before := s.Now().Add(-s.DedupWindow)
	for len(s.idOrder) > 0 && s.idOrder[0].at.Before(before) {
		if d := s.idOrder[0]; s.ids[d.id] == d {
			delete(s.ids, d.id)
		}
		s.idOrder = s.idOrder[1:]
	}
}

// LastSeq is the last sequence of the event stream.
func (s *Server) LastSeq() uint64 {
	if n := len(s.messages); n > 0 {
		return s.messages[n-1].Seq
	}
	return 0
}

func (s *Server) lastOn(scope string) uint64 {
	if !strings.ContainsAny(scope, "*>") {
		return s.last[scope]
	}
	var seq uint64
	for subject, n := range s.last {
		if n > seq && matches(scope, subject) {
			seq = n
		}
	}
	return seq
}

// matches reports whether a subject fits a pattern with wildcards.
func matches(pattern, subject string) bool {
	p, t := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, w := range p {
		switch {
		case w == ">":
			return i < len(t)
		case i >= len(t), w != "*" && w != t[i]:
			return false
		}
	}
	return len(p) == len(t)
}

// FirstAfter implements streams.Wire.
func (w wire) FirstAfter(ctx context.Context, subject string, seq uint64) (streams.Message, bool, error) {
	if err := w.s.point("first_after", false); err != nil {
		return streams.Message{}, false, err
	}
	i, _ := slices.BinarySearchFunc(w.s.messages, seq+1, bySeq)
	for ; i < len(w.s.messages); i++ {
		if m := w.s.messages[i]; m.Subject == subject || (strings.ContainsAny(subject, "*>") && matches(subject, m.Subject)) {
			return m, true, nil
		}
	}
	return streams.Message{}, false, nil
}

// At implements streams.Wire.
func (w wire) At(ctx context.Context, seq uint64) (streams.Message, bool, error) {
	if err := w.s.point("at", false); err != nil {
		return streams.Message{}, false, err
	}
	i, ok := slices.BinarySearchFunc(w.s.messages, seq, bySeq)
	if !ok {
		return streams.Message{}, false, nil
	}
	return w.s.messages[i], true, nil
}

// Pause implements streams.Wire.
func (w wire) Pause(ctx context.Context, n int) bool { return w.pause(ctx, n) }

// Tail reads the messages after a sequence, at most limit of those that are
// there; none is an empty answer.
func (s *Server) Tail(after uint64, limit int) ([]streams.Message, error) {
	if err := s.point("tail", false); err != nil {
		return nil, err
	}
	i, _ := slices.BinarySearchFunc(s.messages, after+1, bySeq)
	return s.messages[i:min(i+limit, len(s.messages))], nil
}

// Messages returns the whole stream, for whoever checks it afterwards. Nobody
// changes it.
func (s *Server) Messages() []streams.Message { return s.messages }

// Truncate cuts the stream after a sequence, as a power cut does to a tail that
// was not synced. What the bucket has folded stays.
func (s *Server) Truncate(after uint64) {
	i, _ := slices.BinarySearchFunc(s.messages, after+1, bySeq)
	s.messages = slices.Clone(s.messages[:i])
	clear(s.last)
	for _, m := range s.messages {
		s.last[m.Subject] = m.Seq
	}
	for id, d := range s.ids {
		if d.seq > after {
			delete(s.ids, id)
		}
	}
}

// Put implements events.Objects.
func (s *Server) Put(_ context.Context, data []byte) (string, error) {
	if err := s.point("object_put", false); err != nil {
		return "", fmt.Errorf("%w: %w", events.ErrUnavailable, err)
	}
	address := "sha256:" + events.HexSHA256(data)
	s.objects[address] = slices.Clone(data)
	return address, nil
}

// Get implements events.Objects.
func (s *Server) Get(_ context.Context, address string) ([]byte, error) {
	if err := s.point("object_get", false); err != nil {
		return nil, fmt.Errorf("%w: %w", events.ErrUnavailable, err)
	}
	data, ok := s.objects[address]
	if !ok {
		return nil, events.ErrNotFound
	}
	return slices.Clone(data), nil
}

// Load implements events.Bucket.
func (s *Server) Load(_ context.Context, key string) ([]byte, uint64, error) {
	if err := s.point("load", false); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", events.ErrUnavailable, err)
	}
	v, ok := s.values[key]
	if !ok {
		return nil, 0, events.ErrNotFound
	}
	return v.data, v.revision, nil
}

// Checkpoint implements events.Bucket.
func (s *Server) Checkpoint(ctx context.Context) (events.Checkpoint, uint64, error) {
	var c events.Checkpoint
	data, rev, err := s.Load(ctx, events.CheckpointKey)
	if errors.Is(err, events.ErrNotFound) {
		return c, 0, nil
	}
	if err != nil {
		return c, 0, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, 0, fmt.Errorf("decode checkpoint: %w", err)
	}
	return c, rev, nil
}

// Commit implements events.Bucket, with the same two shapes as the real one: up
// to one change is two writes, the checkpoint last; more are one batch.
func (s *Server) Commit(_ context.Context, changes []events.Change, c events.Checkpoint, revision uint64) ([]uint64, uint64, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, 0, fmt.Errorf("encode checkpoint: %w", err)
	}
	all := append(slices.Clone(changes), events.Change{Key: events.CheckpointKey, Value: data, Revision: revision})
	revs := make([]uint64, 0, len(all))
	if len(all) <= 2 {
		for _, ch := range all {
			if err := s.write("put", []events.Change{ch}, &revs); err != nil {
				return nil, 0, err
			}
		}
	} else if err := s.write("batch", all, &revs); err != nil {
		return nil, 0, err
	}
	return revs[:len(changes):len(changes)], revs[len(changes)], nil
}

// write stores changes all or nothing. A lost answer reads as unavailable, as
// long as nothing else tells: the caller is gone or begins anew.
func (s *Server) write(call string, all []events.Change, revs *[]uint64) error {
	if err := s.point(call, false); err != nil {
		return fmt.Errorf("%w: %w", events.ErrUnavailable, err)
	}
	for _, ch := range all {
		if s.values[ch.Key].revision != ch.Revision {
			return fmt.Errorf("%w: %s", events.ErrConflict, ch.Key)
		}
	}
	for _, ch := range all {
		s.revision++
		data := slices.Clone(ch.Value)
		s.values[ch.Key] = value{data, s.revision}
		if ch.Key != events.CheckpointKey {
			s.changes = append(s.changes, change{s.revision, ch.Key})
		}
		*revs = append(*revs, s.revision)
	}
	if err := s.point(call, true); err != nil {
		return fmt.Errorf("%w: %w", events.ErrUnavailable, err)
	}
	return nil
}

// Changed returns the keys that were written after a revision, in order, and the
// revision to ask from next: what a watch of the bucket shows.
func (s *Server) Changed(after uint64) (keys []string, now uint64) {
	i, _ := slices.BinarySearchFunc(s.changes, after+1, func(c change, rev uint64) int { return cmp.Compare(c.revision, rev) })
	for _, c := range s.changes[i:] {
		keys = append(keys, c.key)
	}
	slices.Sort(keys)
	return slices.Compact(keys), s.revision
}

// Peek reads a value as nobody's call: for whoever checks, and for watches.
func (s *Server) Peek(key string) ([]byte, uint64) {
	v := s.values[key]
	return v.data, v.revision
}

// Revision is the bucket's latest.
func (s *Server) Revision() uint64 { return s.revision }

// Values returns all that the bucket holds, without the checkpoint.
func (s *Server) Values() map[string][]byte {
	out := map[string][]byte{}
	for k, v := range s.values {
		if k != events.CheckpointKey {
			out[k] = v.data
		}
	}
	return out
}

// Keys returns the keys of the bucket in order, without the checkpoint.
func (s *Server) Keys() []string { return slices.Sorted(maps.Keys(s.Values())) }

// DropBucket deletes every record and the checkpoint.
func (s *Server) DropBucket() { clear(s.values) }
