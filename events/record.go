package events

import (
	"encoding/json"
	"fmt"
)

// CheckpointKey is the bucket key of the checkpoint.
const CheckpointKey = "_ckpt"

// JobBucketKey is where the bucket holds an operation's job.
func JobBucketKey(p Provider, op OperationID) string { return "op." + string(p) + "." + string(op) }

// RemoteBucketKey is where the bucket holds a remote job.
func RemoteBucketKey(p Provider, key JobKey) string { return "job." + string(p) + "." + string(key) }

// AccountBucketKey is where the bucket holds a credential set's record.
func AccountBucketKey(p Provider, key string) string { return "account." + string(p) + "." + key }

// JobBucketPrefix begins every JobBucketKey.
const JobBucketPrefix = "op."

// EncodeRecord writes a Job, a Remote, an Account or a Checkpoint as the bucket holds it.
func EncodeRecord(v any) ([]byte, error) {
	b, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return b, nil
}

// DecodeJob reads a job as the bucket holds it.
func DecodeJob(b []byte) (*Job, error) {
	j := new(Job)
	if err := json.Unmarshal(b, j); err != nil {
		return nil, fmt.Errorf("decode job: %w", err)
	}
	return j, nil
}

// DecodeRemote reads a remote job as the bucket holds it.
func DecodeRemote(b []byte) (*Remote, error) {
	r := new(Remote)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("decode remote: %w", err)
	}
	return r, nil
}

// DecodeAccount reads a credential set's record as the bucket holds it.
func DecodeAccount(b []byte) (*Account, error) {
	a := new(Account)
	if err := json.Unmarshal(b, a); err != nil {
		return nil, fmt.Errorf("decode account: %w", err)
	}
	return a, nil
}
