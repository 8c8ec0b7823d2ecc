package streams_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/pawl-dev/pawl/streams"
)

var update = flag.Bool("update", false, "write the files under deploy/ anew")

// Without this test deploy/ describes another installation than the code makes.
func TestDeploymentIsTheTopology(t *testing.T) {
	tp := streams.MakeTopology(streams.Config{Replicas: 3})
	want, err := json.MarshalIndent(map[string]any{
		"streams":       []any{tp.Events, tp.Intents, tp.Jobs, tp.Leases},
		"object_stores": []any{tp.Objects},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	const path = "../deploy/streams.json"
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Errorf("%s differs from the topology in code (%v); look at the difference, then run the test with -update", path, err)
	}
	var sum int64
	for _, n := range []int64{tp.Events.MaxBytes, tp.Intents.MaxBytes, tp.Jobs.MaxBytes, tp.Objects.MaxBytes} {
		sum += n
	}
	t.Setenv("NATS_NAME", "nats-1")
	opts, err := natsserver.ProcessConfigFile("../deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !opts.SyncAlways || opts.JetStreamMaxStore < sum || int(opts.MaxPayload) < int(tp.Events.MaxMsgSize) {
		t.Errorf("nats.conf: want sync always, a store over %d and a payload over %d, got %v, %d, %d", sum, tp.Events.MaxMsgSize, opts.SyncAlways, opts.JetStreamMaxStore, opts.MaxPayload)
	}
}
