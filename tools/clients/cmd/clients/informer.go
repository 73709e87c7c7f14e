package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informer keeps a cache of ConfigMaps by client-go's shared informer while another client writes, and says
// which events each object gave and what the cache held in the end.
func informer(ctx context.Context, config *rest.Config, namespace string) error {
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	maps := set.CoreV1().ConfigMaps(namespace)
	mine := map[string]string{"made-by": "informer"}
	make := func(name string) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: mine}, Data: map[string]string{"n": "0"}}
		_, err := maps.Create(ctx, object, metav1.CreateOptions{FieldManager: "informer"})
		return err
	}
	for i := range 5 {
		if err := make(fmt.Sprintf("before-%d", i)); err != nil {
			return err
		}
	}

	factory := informers.NewSharedInformerFactoryWithOptions(set, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "made-by=informer" }))
	configMaps := factory.Core().V1().ConfigMaps()
	var lock sync.Mutex
	events := map[string][]string{}
	note := func(object any, event string) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		lock.Lock()
		defer lock.Unlock()
		name := object.(*corev1.ConfigMap).Name
		events[name] = append(events[name], event)
	}
	if _, err := configMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { note(object, "add") },
		UpdateFunc: func(_, object any) { note(object, "update "+object.(*corev1.ConfigMap).Data["n"]) },
		DeleteFunc: func(object any) { note(object, "delete") },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	for i := range 5 {
		if err := make(fmt.Sprintf("after-%d", i)); err != nil {
			return err
		}
	}
	patch := []byte(`{"data":{"n":"1"}}`)
	if _, err := maps.Patch(ctx, "before-0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	strategic := []byte(`{"data":{"n":"2","m":null}}`)
	if _, err := maps.Patch(ctx, "before-0", types.StrategicMergePatchType, strategic, metav1.PatchOptions{}); err != nil {
		return err
	}
	applied := corev1apply.ConfigMap("before-1", namespace).WithData(map[string]string{"n": "3"})
	_, err = maps.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "applier"})
	say("apply over another's field: %v", err)
	if _, err := maps.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "applier", Force: true}); err != nil {
		return err
	}
	object, err := maps.Get(ctx, "before-2", metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.Data["n"] = "4"
	if _, err := maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	object.Data["n"] = "5"
	_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
	say("update of an old version: %v", err)
	object, err = maps.Get(ctx, "before-3", metav1.GetOptions{})
	if err != nil {
		return err
	}
	// It leaves what the informer selects: for the informer it is gone.
	object.Labels = nil
	if _, err := maps.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := maps.Delete(ctx, "before-4", metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err = maps.Get(ctx, "before-4", metav1.GetOptions{})
	say("get of what is gone: %v", err)
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "made-by=informer", FieldSelector: "metadata.name=after-4"}); err != nil {
		return err
	}
	if err := make("last"); err != nil {
		return err
	}
	if err := await(ctx, "the last object in the cache", func() (bool, error) {
		_, err := configMaps.Lister().ConfigMaps(namespace).Get("last")
		return err == nil, nil
	}); err != nil {
		return err
	}
	// What comes before the last in order has been delivered; handlers run beside the cache.
	if err := await(ctx, "the last event", func() (bool, error) {
		lock.Lock()
		defer lock.Unlock()
		return len(events["last"]) > 0, nil
	}); err != nil {
		return err
	}
	lock.Lock()
	defer lock.Unlock()
	names := []string{}
	for name := range events {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		say("%s: %v", name, events[name])
	}
	cached, err := configMaps.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	names = names[:0]
	for _, object := range cached {
		names = append(names, fmt.Sprintf("%s=%s", object.Name, object.Data["n"]))
	}
	sort.Strings(names)
	say("cache: %v", names)
	return pages(ctx, set, namespace)
}

// pages lists by limit and continue, as `kubectl get --chunk-size` does, and by protobuf.
func pages(ctx context.Context, set *kubernetes.Clientset, namespace string) error {
	options := metav1.ListOptions{Limit: 4, LabelSelector: "made-by=informer"}
	for {
		list, err := set.CoreV1().ConfigMaps(namespace).List(ctx, options)
		if err != nil {
			return err
		}
		names := []string{}
		for _, object := range list.Items {
			names = append(names, object.Name)
		}
		say("page: %v, more: %v", names, list.Continue != "")
		if list.Continue == "" {
			break
		}
		options.Continue = list.Continue
	}
	seconds := int64(1)
	watch, err := set.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds, ResourceVersion: "0", FieldSelector: "metadata.name=last"})
	if err != nil {
		return err
	}
	began := time.Now()
	for event := range watch.ResultChan() {
		say("watched: %s %s", event.Type, event.Object.(*corev1.ConfigMap).Name)
	}
	say("the watch ended by itself: %v", time.Since(began) < 30*time.Second)
	return nil
}
