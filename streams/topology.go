package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Sizes and windows of the topology. The shares are percent of the budget and
// leave some of it free.
const (
	budgetBytes     = 10 << 30
	eventsShare     = 55
	intentsShare    = 5
	jobsShare       = 25
	objectsShare    = 10
	leasesMaxBytes  = 1 << 20
	messageMaxBytes = 1<<20 + 64<<10 // an intent, or an event with headers
	dedupWindow     = 15 * time.Minute
	leaseTTL        = 5 * time.Second
)

// Topology is every stream that Pawl owns, with each field that matters set. A
// bucket is the stream behind it.
type Topology struct {
	Events  jetstream.StreamConfig
	Intents jetstream.StreamConfig
	Jobs    jetstream.StreamConfig
	Leases  jetstream.StreamConfig
	Objects jetstream.ObjectStoreConfig
}

// MakeTopology names and shapes the streams of an installation.
func MakeTopology(cfg Config) Topology {
	cfg = cfg.withDefaults()
	up := strings.ToUpper(strings.ReplaceAll(cfg.Prefix, "-", "_"))
	return Topology{
		Events: jetstream.StreamConfig{
			Name: up + "_EVENTS", Description: "Pawl: every decision and every piece of evidence; the only truth",
			Subjects: []string{cfg.Prefix + ".events.>"}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			Storage: jetstream.FileStorage, Replicas: cfg.Replicas, MaxBytes: cfg.EventsMaxBytes, MaxMsgs: -1, MaxMsgsPerSubject: -1,
			MaxConsumers: -1, MaxAge: 0, MaxMsgSize: messageMaxBytes, Duplicates: cfg.DedupWindow,
			DenyDelete: true, DenyPurge: false, AllowRollup: false, AllowDirect: false, AllowAtomicPublish: true,
		},
		Intents: jetstream.StreamConfig{
			Name: up + "_INTENTS", Description: "Pawl: intents that are not stored as operations yet",
			Subjects: []string{cfg.Prefix + ".intents.*"}, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew,
			Storage: jetstream.FileStorage, Replicas: cfg.Replicas, MaxBytes: cfg.IntentsMaxBytes, MaxMsgs: -1, MaxMsgsPerSubject: -1,
			MaxConsumers: -1, MaxAge: 0, MaxMsgSize: messageMaxBytes, Duplicates: 2 * time.Minute,
			DenyDelete: false, DenyPurge: false, AllowRollup: false, AllowDirect: false,
		},
		Jobs: jetstream.StreamConfig{
			Name: "KV_" + up + "_JOBS", Description: "Pawl: folded jobs, derived from the events",
			Subjects: []string{"$KV." + up + "_JOBS.>"}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			Storage: jetstream.FileStorage, Replicas: cfg.Replicas, MaxBytes: cfg.JobsMaxBytes, MaxMsgs: -1, MaxMsgsPerSubject: 1,
			MaxConsumers: -1, MaxAge: 0, MaxMsgSize: messageMaxBytes, Duplicates: 2 * time.Minute,
			DenyDelete: true, DenyPurge: false, AllowRollup: true, AllowDirect: true, AllowAtomicPublish: true,
		},
		Leases: jetstream.StreamConfig{
			Name: "KV_" + up + "_LEASES", Description: "Pawl: who is active; losing it costs a take-over",
			Subjects: []string{"$KV." + up + "_LEASES.>"}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			Storage: jetstream.MemoryStorage, Replicas: cfg.Replicas, MaxBytes: leasesMaxBytes, MaxMsgs: -1, MaxMsgsPerSubject: 1,
			MaxConsumers: -1, MaxAge: leaseTTL, MaxMsgSize: 4 << 10, Duplicates: leaseTTL,
			DenyDelete: true, DenyPurge: false, AllowRollup: true, AllowDirect: true,
		},
		Objects: jetstream.ObjectStoreConfig{
			Bucket: up + "_OBJECTS", Description: "Pawl: inputs, bodies and results too large for an event, by content hash",
			Storage: jetstream.FileStorage, Replicas: cfg.Replicas, MaxBytes: cfg.ObjectsMaxBytes,
		},
	}
}

// ensure creates or updates the streams. What cannot be changed on an existing
// stream is an error that says so.
// Limits that are not in given leave an existing stream as large as it is.
func (s *Store) ensure(ctx context.Context, given Config) error {
	t := MakeTopology(s.cfg)
	for _, x := range []struct {
		want  *jetstream.StreamConfig
		given int64
	}{{&t.Events, given.EventsMaxBytes}, {&t.Intents, given.IntentsMaxBytes}, {&t.Jobs, given.JobsMaxBytes}, {&t.Leases, leasesMaxBytes}} {
		if err := s.ensureStream(ctx, x.want, x.given == 0); err != nil {
			return err
		}
	}
	if st, err := s.js.Stream(ctx, "OBJ_"+t.Objects.Bucket); err == nil && given.ObjectsMaxBytes == 0 {
		t.Objects.MaxBytes = st.CachedInfo().Config.MaxBytes
	}
	objects, err := s.js.CreateOrUpdateObjectStore(ctx, t.Objects)
	if err != nil {
		return fmt.Errorf("object store %s: %w", t.Objects.Bucket, err)
	}
	s.objects = objectStore{objects}
	s.topology = t
	return nil
}

func (s *Store) ensureStream(ctx context.Context, want *jetstream.StreamConfig, keepSize bool) error {
	have, err := s.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = s.js.CreateStream(ctx, *want); err != nil {
			return fmt.Errorf("create stream %s: %w", want.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", want.Name, err)
	}
	got := have.CachedInfo().Config
	if keepSize {
		want.MaxBytes = got.MaxBytes
	}
	want.Placement, want.Metadata = got.Placement, got.Metadata // the operator's business
	switch {
	case got.Storage != want.Storage, got.Retention != want.Retention:
		return fmt.Errorf("stream %s exists with %s storage and %s retention, want %s and %s: these cannot be changed; choose another prefix", want.Name, got.Storage, got.Retention, want.Storage, want.Retention)
	case got.DenyPurge && !want.DenyPurge:
		return fmt.Errorf("stream %s denies purge, and that cannot be changed; choose another prefix", want.Name)
	}
	if _, err := s.js.UpdateStream(ctx, *want); err != nil {
		return fmt.Errorf("update stream %s: %w", want.Name, err)
	}
	return nil
}
