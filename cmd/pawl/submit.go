package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-dev/pawl/events"
)

func newSubmit() *cobra.Command {
	var id, input, by string
	var effects []string
	var labels map[string]string
	var asJSON bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "submit PROVIDER",
		Short: "Submit an intent and print its operation id",
		Example: `  pawl submit demo --input '{"report": "q3"}'
  pawl submit demo --input @request.json --id invoice-4711 --wait 1m
  generate | pawl submit demo --input -`,
		Args: usage(cobra.ExactArgs(1)),
	}
	server := addServerFlag(c)
	f := c.Flags()
	f.StringVar(&id, "id", "", "operation id; submitting the same id and request again is safe (default: a new one)")
	f.StringVar(&input, "input", "", "JSON object, @FILE, or - for standard input")
	f.StringVar(&by, "by", "", "who authorises it")
	f.StringSliceVar(&effects, "effect", nil, "effects to run on settlement (default: the configured ones)")
	f.StringToStringVar(&labels, "label", nil, "labels, key=value")
	f.DurationVar(&wait, "wait", 0, "wait this long for the outcome")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		raw, err := readInput(input, c.InOrStdin())
		if err != nil {
			return withCode(exitUsage, err)
		}
		if err := events.CheckJSON(raw); err != nil {
			return withCode(exitUsage, fmt.Errorf("--input: %w", err))
		}
		if id == "" {
			op, err := events.NewOperationID(now(), rand.Reader)
			if err != nil {
				return err
			}
			id = string(op)
		}
		intent := map[string]any{"operation_id": id, "provider": args[0], "input": json.RawMessage(raw)}
		if by != "" {
			intent["authorized_by"] = by
		}
		if c.Flags().Changed("effect") {
			intent["effects"] = effects
		}
		if labels != nil {
			intent["labels"] = labels
		}
		body, err := json.Marshal(intent)
		if err != nil {
			return withCode(exitUsage, err)
		}
		cl := newClient(*server)
		var out map[string]any
		if _, err := cl.do(c.Context(), http.MethodPost, "/v1/operations", body, http.Header{"Content-Type": {"application/json"}}, &out); err != nil {
			return clientErr(err)
		}
		if wait > 0 {
			if _, err := cl.do(c.Context(), http.MethodGet, operationPath(id)+"/outcome?wait="+min(wait, time.Minute).String(), nil, nil, &out); err != nil {
				return clientErr(err)
			}
		}
		if asJSON || wait > 0 {
			return printJSON(c.OutOrStdout(), out)
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), id)
		return err
	}
	return c
}

func readInput(arg string, stdin io.Reader) ([]byte, error) {
	switch {
	case arg == "":
		return nil, fmt.Errorf("--input is required: a JSON object, @FILE, or -")
	case arg == "-":
		return io.ReadAll(io.LimitReader(stdin, events.IntentMaxBytes+1))
	case strings.HasPrefix(arg, "@"):
		return os.ReadFile(arg[1:])
	default:
		return []byte(arg), nil
	}
}
