package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// pods leads every Pod through its life, one at a time.
type pods struct {
	client  corev1.CoreV1Interface
	servers servers
	// count numbers what is started.
	count int
}

func (p *pods) run(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	add := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	handlers := cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) }, DeleteFunc: add,
	}
	if _, err := informer.AddEventHandler(handlers); err != nil {
		log.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	go func() { <-ctx.Done(); queue.ShutDown() }()
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		object, ok, _ := informer.GetIndexer().GetByKey(key)
		if !ok {
			p.servers.stop(key)
		} else {
			again, err := p.sync(ctx, object.(*v1.Pod))
			switch {
			case err != nil:
				log.Printf("%s: %v", key, err)
				queue.AddRateLimited(key)
			case again > 0:
				queue.AddAfter(key, again)
			default:
				queue.Forget(key)
			}
		}
		queue.Done(key)
	}
}

// sync takes a Pod's next step; it says when to look again.
func (p *pods) sync(ctx context.Context, pod *v1.Pod) (time.Duration, error) {
	switch {
	case pod.DeletionTimestamp != nil:
		return 0, p.letGo(ctx, pod)
	case pod.Spec.NodeName == "":
		return 0, nil
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		return 0, nil
	}
	what := intentOf(pod)
	ending := false
	if pod.Status.Phase == v1.PodRunning {
		fresh := len(pod.Spec.EphemeralContainers) == len(pod.Status.EphemeralContainerStatuses) &&
			pod.Status.ObservedGeneration == pod.Generation
		if fresh && !what.ends {
			return 0, nil
		}
		if age := time.Since(pod.Status.StartTime.Time); age < time.Second {
			return time.Second - age, nil
		}
		ending = fresh
	} else if err := p.servers.serve(ctx, p.client, pod); err != nil {
		return 0, err
	}
	err := p.say(ctx, pod, p.status(pod, ending, what))
	if what.ends && !ending {
		return time.Second, err
	}
	return 0, err
}

func (p *pods) say(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.client.Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// letGo ends a Pod's containers, says so, and lets the Pod go.
func (p *pods) letGo(ctx context.Context, pod *v1.Pod) error {
	now := int64(0)
	if pod.Spec.NodeName == "" || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return nil
	}
	p.servers.stop(pod.Namespace + "/" + pod.Name)
	if pod.Status.Phase == v1.PodRunning {
		killed := p.status(pod, true, intent{fails: true})
		if err := p.say(ctx, pod, killed); err != nil && !errors.IsNotFound(err) {
			return err
		}
	}
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	err := p.client.Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}

// intent is what a Pod's containers would do, as far as their words tell.
type intent struct {
	ends, fails, ready bool
}

func intentOf(pod *v1.Pod) intent {
	words, ready := "", true
	for _, container := range pod.Spec.Containers {
		words += strings.Join(container.Command, " ") + " " + strings.Join(container.Args, " ")
		if probe := container.ReadinessProbe; probe != nil && probe.Exec != nil {
			ready = ready && !strings.Contains(strings.Join(probe.Exec.Command, " "), "false")
		}
	}
	has := func(word string) bool { return strings.Contains(words, word) }
	forever := has("sleep 1000000") || has("sleep infinity") || has("pause") || strings.TrimSpace(words) == ""
	return intent{
		ends:  pod.Spec.RestartPolicy != v1.RestartPolicyAlways && !forever,
		fails: has("exit 1") || has("false"),
		ready: ready,
	}
}

func (p *pods) status(pod *v1.Pod, ending bool, what intent) v1.PodStatus {
	now := metav1.Now()
	status := v1.PodStatus{
		Phase: v1.PodRunning, PodIP: pod.Status.PodIP, HostIP: nodeAddress(0), StartTime: pod.Status.StartTime,
		QOSClass: pod.Status.QOSClass, ObservedGeneration: pod.Generation,
	}
	if status.StartTime == nil {
		p.count++
		status.PodIP, status.StartTime = fmt.Sprintf("10.1.%d.%d", p.count/250%250, p.count%250+1), &now
	}
	status.PodIPs, status.HostIPs = []v1.PodIP{{IP: status.PodIP}}, []v1.HostIP{{IP: status.HostIP}}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: *status.StartTime}}
	state, ready := running, what.ready
	if ending {
		end := v1.ContainerStateTerminated{Reason: "Completed", StartedAt: *status.StartTime, FinishedAt: now}
		status.Phase, ready = v1.PodSucceeded, false
		if what.fails {
			status.Phase, end.ExitCode, end.Reason = v1.PodFailed, 1, "Error"
		}
		state = v1.ContainerState{Terminated: &end}
	}
	started := true
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: "fake", ContainerID: "fake://1", Ready: ready,
			Started: &started, State: state,
		})
	}
	for _, container := range pod.Spec.EphemeralContainers {
		status.EphemeralContainerStatuses = append(status.EphemeralContainerStatuses, v1.ContainerStatus{
			Name: container.Name, Image: container.Image, State: running,
		})
	}
	condition := func(kind v1.PodConditionType, is bool) {
		value := v1.ConditionFalse
		if is {
			value = v1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, v1.PodCondition{
			Type: kind, Status: value, LastTransitionTime: now, ObservedGeneration: pod.Generation,
		})
	}
	for _, kind := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodScheduled} {
		condition(kind, true)
	}
	condition(v1.PodReady, ready)
	condition(v1.ContainersReady, ready)
	return status
}
