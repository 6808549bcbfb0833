// Creates one topic, exactly once, whatever happens to the controllers meanwhile. docs/clients.md explains each step.
//
//	create_topic -controllers 127.0.0.1:9001,127.0.0.1:9002 -topic orders
//
// It prints "created at offset N", or says what happened and ends with exit code 1. "unknown" means that the topic may have been
// created.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	quorum_rpc "metaquorum/quorum_rpc/v1"
)

const (
	attempt = 2 * time.Second
	grace   = 250 * time.Millisecond // the node's own deadline comes so much earlier
	pause   = 50 * time.Millisecond
)

// A client asks one controller at a time.
type client struct {
	controllers []string
	turn        int
	target      string
	followed    bool // the target is a leader that the last refusal named
	connections map[string]*grpc.ClientConn
	// The highest offset that this client was told of.
	seen int64
}

func (c *client) stub() (quorum_rpc.AdminServiceClient, error) {
	if c.connections[c.target] == nil {
		connection, err := grpc.NewClient(c.target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.connections[c.target] = connection
	}
	return quorum_rpc.NewAdminServiceClient(c.connections[c.target]), nil
}

// refusal returns what a node has said about a failed call; nil if no node has said anything, and the transport broke.
func refusal(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == "metaquorum" {
			return info
		}
	}
	return nil
}

// askElsewhere returns whether another controller, or this one in a moment, may do what this one refused. Nothing was done.
func askElsewhere(err error) bool {
	code := status.Code(err)
	return refusal(err) != nil && (code == codes.Unavailable || code == codes.ResourceExhausted)
}

// isLost returns whether the outcome of a change is unknown.
func isLost(err error) bool {
	info := refusal(err)
	return info == nil || info.Reason == "REQUEST_TIMED_OUT"
}

// next chooses the leader that the refusal names, or the next controller of the list. After a second hint in a row it pauses,
// because two controllers may name each other.
func (c *client) next(err error) {
	info := refusal(err)
	if info != nil && info.Metadata["leader_host"] != "" {
		leader := net.JoinHostPort(info.Metadata["leader_host"], info.Metadata["leader_port"])
		if leader != c.target && !c.followed {
			c.target, c.followed = leader, true
			return
		}
	}
	c.followed = false
	c.turn = (c.turn + 1) % len(c.controllers)
	c.target = c.controllers[c.turn]
	time.Sleep(pause)
}

// once makes one attempt at one controller.
func (c *client) once(call func(context.Context, quorum_rpc.AdminServiceClient) error) error {
	stub, err := c.stub()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), attempt+grace)
	defer cancel()
	return call(ctx, stub)
}

// see reads an offset: the controllers remember the outcome of every change that is made above.
func (c *client) see(until time.Time) error {
	err := error(nil)
	for time.Now().Before(until) {
		err = c.once(func(ctx context.Context, stub quorum_rpc.AdminServiceClient) error {
			request := &quorum_rpc.ListTopicsRequest{Context: &quorum_rpc.RequestContext{TimeoutMs: int32(attempt.Milliseconds())}, PageSize: 1}
			listed, err := stub.ListTopics(ctx, request)
			c.seen = max(c.seen, listed.GetAsOfOffset())
			return err
		})
		if err == nil {
			return nil
		}
		c.next(err) // a read changes nothing, so it may be repeated after any error
	}
	return fmt.Errorf("no controller answered in time; nothing was done: %w", err)
}

// create sends one request, with one id, until a controller says what became of it.
func (c *client) create(topic string, until time.Time) (int64, error) {
	id := make([]byte, 16)
	rand.Read(id)
	request := &quorum_rpc.CreateTopicsRequest{
		Context: &quorum_rpc.RequestContext{
			RequestId:           id,
			ClientHighWatermark: c.seen,
			TimeoutMs:           int32(attempt.Milliseconds()),
		},
		// Counts that are not set are the controllers' defaults.
		Topics: []*quorum_rpc.NewTopic{{Name: topic}},
	}
	lost, last := false, error(nil)
	for time.Now().Before(until) {
		var answer *quorum_rpc.CreateTopicsResponse
		last = c.once(func(ctx context.Context, stub quorum_rpc.AdminServiceClient) (err error) {
			answer, err = stub.CreateTopics(ctx, request)
			return err
		})
		switch {
		case last == nil:
			problem := answer.Results[0].GetError()
			if problem.GetCode() == quorum_rpc.ErrorCode_NONE {
				return answer.Offset, nil
			}
			return 0, outcome(lost, fmt.Errorf("%s: %s", problem.GetCode(), problem.GetMessage()))
		case isLost(last):
			lost = true // the same id again: a repetition gets the first answer
		case !askElsewhere(last):
			return 0, outcome(lost, last)
		}
		c.next(last)
	}
	return 0, outcome(lost, fmt.Errorf("no controller answered in time: %w", last))
}

// outcome says what a refusal means: after a lost attempt it settles nothing, for that attempt may still arrive.
func outcome(lost bool, err error) error {
	if lost {
		return fmt.Errorf("unknown: %w", err)
	}
	return fmt.Errorf("nothing was done: %w", err)
}

func main() {
	controllers := flag.String("controllers", "127.0.0.1:9001", "host:port of controllers or brokers, with commas")
	topic := flag.String("topic", "", "the topic to create")
	timeout := flag.Duration("timeout", 10*time.Second, "for everything")
	flag.Parse()

	targets := strings.Split(*controllers, ",")
	c := &client{controllers: targets, target: targets[0], connections: map[string]*grpc.ClientConn{}}
	until := time.Now().Add(*timeout)
	offset, err := int64(0), c.see(until)
	if err == nil {
		offset, err = c.create(*topic, until)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("created at offset %d\n", offset)
}
