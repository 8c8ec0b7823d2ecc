package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

// objectStore implements events.Objects. An object's name is its hash.
type objectStore struct{ store jetstream.ObjectStore }

const addressPrefix = "sha256:"

// Put implements events.Objects.
func (o objectStore) Put(ctx context.Context, data []byte) (string, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	hash := events.HexSHA256(data)
	if _, err := o.store.GetInfo(ctx, hash); err == nil {
		return addressPrefix + hash, nil
	} else if !errors.Is(err, jetstream.ErrObjectNotFound) {
		return "", unavailable("put object", err)
	}
	if _, err := o.store.PutBytes(ctx, hash, data); err != nil {
		return "", unavailable("put object", err)
	}
	return addressPrefix + hash, nil
}

// Get implements events.Objects.
func (o objectStore) Get(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	hash, ok := strings.CutPrefix(address, addressPrefix)
	if !ok {
		return nil, fmt.Errorf("object %.80q: %w", address, events.ErrNotFound)
	}
	data, err := o.store.GetBytes(ctx, hash)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("object %.80q: %w", address, events.ErrNotFound)
	}
	if err != nil {
		return nil, unavailable("get object", err)
	}
	if events.HexSHA256(data) != hash {
		return nil, fmt.Errorf("object %.80q does not have its hash", address)
	}
	return data, nil
}
