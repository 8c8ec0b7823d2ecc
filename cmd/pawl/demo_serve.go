package main

import (
	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"

	"time"
)

// startDemoProvider runs a well-behaved provider on loopback and adds it to the
// configured ones, so that `pawl serve` has somebody to talk to.
func startDemoProvider(providers map[events.Provider]*provider.Provider) (url string, stop func(), err error) {
	if providers[demoName] != nil {
		return "", nil, withCode(exitUsage, errDuplicateProvider)
	}
	p, err := newFlakyProvider(flakyProviderConfig{
		Seed: 1, Shape: shapeGeneric, WebhookSecret: demoHookSecret, APIToken: demoToken, JobMin: time.Second, JobMax: 3 * time.Second,
	})
	if err != nil {
		return "", nil, err
	}
	if providers[demoName], err = demoProvider(demoName, "generic", p.URL()); err != nil {
		closeSoon(p)
		return "", nil, err
	}
	return p.URL(), func() { closeSoon(p) }, nil
}
