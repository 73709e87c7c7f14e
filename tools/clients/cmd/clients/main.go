// Programs as others write them, run against any cluster. Each prints what it saw, in a form that does not
// depend on the cluster; the test compares what two clusters made it print.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A program works in a namespace of its own.
type program func(ctx context.Context, config *rest.Config, namespace string) error

var programs = map[string]program{
	"informer":   informer,
	"controller": controller,
	"election":   election,
	"webhook":    admissionWebhooks,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: clients informer|controller|election|webhook NAMESPACE, with KUBECONFIG set")
	}
	chosen, found := programs[os.Args[1]]
	if !found {
		return fmt.Errorf("no program is called %q", os.Args[1])
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = -1
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return chosen(ctx, config, os.Args[2])
}

// say prints a line of what the program saw.
func say(format string, arguments ...any) {
	fmt.Printf(format+"\n", arguments...)
}

// await polls until done says so.
func await(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
