package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery paces the reads of `pawl watch`.
const watchEvery = 500 * time.Millisecond

func newWatch() *cobra.Command {
	c := &cobra.Command{
		Use: "watch [OPERATION]", Short: "Follow one operation until its outcome, or all of them",
		Args: usage(cobra.MaximumNArgs(1)),
	}
	server := addServerFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl := newClient(*server)
		if len(args) == 1 {
			return watchOne(c, cl, args[0])
		}
		return watchAll(c, cl)
	}
	return c
}

// watchOne prints each line of the history once, until the outcome is known.
func watchOne(c *cobra.Command, cl *client, id string) error {
	var last uint64
	for {
		var outcome struct {
			Outcome string `json:"outcome"`
		}
		if _, err := cl.do(c.Context(), http.MethodGet, operationPath(id)+"/outcome", nil, nil, &outcome); err != nil {
			return clientErr(err)
		}
		var h historyView
		if _, err := cl.do(c.Context(), http.MethodGet, operationPath(id)+"/history", nil, nil, &h); err != nil {
			return clientErr(err)
		}
		markCopies(h.Entries)
		for _, e := range h.Entries {
			if e.Seq > last {
				last = e.Seq
				if _, err := fmt.Fprintln(c.OutOrStdout(), e.line()); err != nil {
					return err
				}
			}
		}
		if outcome.Outcome != "pending" {
			_, err := fmt.Fprintln(c.OutOrStdout(), "outcome: "+outcome.Outcome)
			return err
		}
		if err := sleep(c.Context(), watchEvery); err != nil {
			return stopped(err)
		}
	}
}

// watchAll prints a line whenever one of the newest operations changes its state.
func watchAll(c *cobra.Command, cl *client) error {
	seen := map[string]string{}
	for {
		var page struct {
			Operations []operationView `json:"operations"`
		}
		if _, err := cl.do(c.Context(), http.MethodGet, "/v1/operations?limit=500", nil, nil, &page); err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return clientErr(err)
		}
		fresh := make(map[string]string, len(page.Operations))
		for i := len(page.Operations) - 1; i >= 0; i-- {
			op := page.Operations[i]
			fresh[op.OperationID] = op.State
			if seen[op.OperationID] == op.State {
				continue
			}
			if _, err := fmt.Fprintf(c.OutOrStdout(), "%s  %-32s  %-12s  %s (%s)\n", now().Format("15:04:05"), op.OperationID, op.Provider, op.State, op.Why); err != nil {
				return err
			}
		}
		seen = fresh
		if err := sleep(c.Context(), watchEvery); err != nil {
			return stopped(err)
		}
	}
}

// stopped turns the end of the context into a normal end.
func stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
