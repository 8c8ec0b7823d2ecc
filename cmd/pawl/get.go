package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func newGet() *cobra.Command {
	var asJSON, history bool
	c := &cobra.Command{Use: "get OPERATION", Short: "Show one operation", Args: usage(cobra.ExactArgs(1))}
	server := addServerFlag(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print everything as JSON")
	c.Flags().BoolVar(&history, "history", false, "print every transition")
	c.RunE = func(c *cobra.Command, args []string) error {
		cl := newClient(*server)
		if history {
			var h historyView
			if _, err := cl.do(c.Context(), http.MethodGet, operationPath(args[0])+"/history", nil, nil, &h); err != nil {
				return clientErr(err)
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), h)
			}
			markCopies(h.Entries)
			for _, e := range h.Entries {
				if _, err := fmt.Fprintln(c.OutOrStdout(), e.line()); err != nil {
					return err
				}
			}
			return nil
		}
		var raw json.RawMessage
		if _, err := cl.do(c.Context(), http.MethodGet, operationPath(args[0]), nil, nil, &raw); err != nil {
			return clientErr(err)
		}
		if asJSON {
			return printJSON(c.OutOrStdout(), raw)
		}
		var op operationView
		if err := json.Unmarshal(raw, &op); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(w, "operation\t%s\nprovider\t%s\nstate\t%s\nwhy\t%s\noutcome\t%s\ncreated\t%s\n",
			op.OperationID, op.Provider, op.State, op.because(), op.Outcome, op.CreatedAt.Format(time.RFC3339)) // Flush reports errors
		if op.Next != "" {
			_, _ = fmt.Fprintf(w, "next\t%s at %s\n", op.Next, op.NextDue.Format(time.RFC3339)) // as above
		}
		return w.Flush()
	}
	return c
}

func newList() *cobra.Command {
	var asJSON, review bool
	var states []string
	var provider string
	var limit int
	c := &cobra.Command{Use: "list", Short: "List operations, newest first", Args: usage(cobra.NoArgs)}
	server := addServerFlag(c)
	f := c.Flags()
	f.StringSliceVar(&states, "state", nil, "only these states")
	f.StringVar(&provider, "provider", "", "only this provider")
	f.BoolVar(&review, "review", false, "only what waits for a person")
	f.IntVar(&limit, "limit", 50, "at most this many, up to 500")
	f.BoolVar(&asJSON, "json", false, "print JSON, one operation a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := url.Values{"limit": {strconv.Itoa(limit)}}
		for _, s := range states {
			q.Add("state", s)
		}
		if provider != "" {
			q.Set("provider", provider)
		}
		if review {
			q.Set("review", "true")
		}
		var page struct {
			Operations []json.RawMessage `json:"operations"`
		}
		if _, err := newClient(*server).do(c.Context(), http.MethodGet, "/v1/operations?"+q.Encode(), nil, nil, &page); err != nil {
			return clientErr(err)
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		if !asJSON {
			_, _ = fmt.Fprintln(w, "OPERATION\tPROVIDER\tSTATE\tOUTCOME\tCREATED") // Flush reports errors
		}
		for _, raw := range page.Operations {
			var op operationView
			if err := json.Unmarshal(raw, &op); err != nil {
				return fmt.Errorf("read answer: %w", err)
			}
			if asJSON {
				_, _ = fmt.Fprintln(w, string(raw)) // as above
				continue
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", op.OperationID, op.Provider, op.State, op.Outcome, op.CreatedAt.Format(time.RFC3339)) // as above
		}
		return w.Flush()
	}
	return c
}

// because is the reason of the state with its words and the events it rests on.
func (o operationView) because() string {
	text := o.Why
	if o.Because != "" {
		text += ": " + o.Because
	}
	if len(o.Evidence) > 0 {
		text += " (events " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(o.Evidence)), ", "), "[]") + ")"
	}
	return text
}

// historyView is the answer of /history as far as the commands show it.
type historyView struct {
	Entries []historyLine `json:"entries"`
}

type historyLine struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Event  string    `json:"event"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Reason string    `json:"reason"`
}

// markCopies says which settlements are the public copies of another.
func markCopies(entries []historyLine) {
	for i := range entries {
		if i > 0 && entries[i].Event == "op.settled" && entries[i-1].Event == "op.settled" {
			entries[i].Reason = "public copy"
		}
	}
}

func (h historyLine) line() string {
	change := h.To
	if h.From != h.To {
		change = strings.TrimPrefix(h.From+" -> "+h.To, " -> ")
	}
	text := fmt.Sprintf("%6d  %s  %-24s  %-32s  %s", h.Seq, h.At.Format("15:04:05.000"), h.Event, change, h.Actor)
	if h.Reason != "" {
		text += "  (" + h.Reason + ")"
	}
	return text
}
