package main

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// election lets two candidates lead one after the other by client-go's leader election.
func election(ctx context.Context, config *rest.Config, namespace string) error {
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var order sync.Mutex
	leading := ""
	var candidates sync.WaitGroup
	for _, name := range []string{"first", "second"} {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "throne", Namespace: namespace},
			Client:     set.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		mine, abdicate := context.WithCancel(ctx)
		candidates.Go(func() {
			leaderelection.RunOrDie(mine, leaderelection.LeaderElectionConfig{
				Lock: lock, ReleaseOnCancel: true,
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(context.Context) {
						order.Lock()
						say("%s leads, while %q does", name, leading)
						leading = name
						order.Unlock()
						time.Sleep(300 * time.Millisecond)
						order.Lock()
						leading = ""
						order.Unlock()
						abdicate()
					},
					OnStoppedLeading: func() {},
				},
			})
		})
		if name == "first" {
			if err := await(ctx, "the first leader", func() (bool, error) {
				order.Lock()
				defer order.Unlock()
				return leading == "first", nil
			}); err != nil {
				abdicate()
				return err
			}
		}
	}
	candidates.Wait()
	lease, err := set.CoordinationV1().Leases(namespace).Get(ctx, "throne", metav1.GetOptions{})
	if err != nil {
		return err
	}
	say("transitions: %d", *lease.Spec.LeaseTransitions)
	return nil
}
