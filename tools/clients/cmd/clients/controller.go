package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/go-logr/logr"
)

const finalizer = "clients.example.com/held"

// controller runs a controller of controller-runtime over a kind of its own: it makes ConfigMaps that a Gadget
// owns, reports in its status, and holds its deletion by a finalizer.
func controller(ctx context.Context, config *rest.Config, namespace string) error {
	log.SetLogger(logr.Discard())
	// The group is this run's own, so that runs on one cluster do not meet.
	group := namespace + ".clients.example.com"
	gadget := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Gadget"}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	definition := definition(gadget)
	if err := direct.Create(ctx, definition); err != nil {
		return err
	}
	defer func() { _ = direct.Delete(context.Background(), definition) }()
	if err := await(ctx, "the kind is established", func() (bool, error) {
		if err := direct.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return false, err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	}); err != nil {
		return err
	}

	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 server.Options{BindAddress: "0"},
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		LeaderElection:          true,
		LeaderElectionID:        "gadgets",
		LeaderElectionNamespace: namespace,
	})
	if err != nil {
		return err
	}
	reconciler := &gadgets{client: manager.GetClient(), scheme: scheme, kind: gadget}
	if err := ctrl.NewControllerManagedBy(manager).Named("gadgets-" + namespace).
		For(object(gadget)).Owns(&corev1.ConfigMap{}).
		WithEventFilter(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.ResourceVersionChangedPredicate{})).
		Complete(reconciler); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()
	defer func() { stop(); <-ended }()

	if err := scenario(ctx, direct, gadget, namespace); err != nil {
		return err
	}
	return nil
}

// scenario is what people do to Gadgets while the controller runs.
func scenario(ctx context.Context, direct client.Client, gadget schema.GroupVersionKind, namespace string) error {
	bad := object(gadget)
	bad.SetNamespace(namespace)
	bad.SetName("bad")
	_ = unstructured.SetNestedField(bad.Object, int64(-1), "spec", "parts")
	say("a bad one: %v", errors.IsInvalid(direct.Create(ctx, bad)))

	one := object(gadget)
	one.SetNamespace(namespace)
	one.SetName("one")
	_ = unstructured.SetNestedField(one.Object, int64(3), "spec", "parts")
	if err := direct.Create(ctx, one); err != nil {
		return err
	}
	parts := func() ([]string, error) {
		list := &corev1.ConfigMapList{}
		if err := direct.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"gadget": "one"}); err != nil {
			return nil, err
		}
		names := []string{}
		for _, item := range list.Items {
			names = append(names, fmt.Sprintf("%s/%d", item.Name, len(item.OwnerReferences)))
		}
		sort.Strings(names)
		return names, nil
	}
	ready := func(count int64) error {
		return await(ctx, fmt.Sprintf("%d parts", count), func() (bool, error) {
			if err := direct.Get(ctx, client.ObjectKeyFromObject(one), one); err != nil {
				return false, err
			}
			made, _, _ := unstructured.NestedInt64(one.Object, "status", "made")
			names, err := parts()
			return made == count && len(names) == int(count) && len(one.GetFinalizers()) == 1, err
		})
	}
	if err := ready(3); err != nil {
		return err
	}
	names, err := parts()
	if err != nil {
		return err
	}
	say("made: %v, finalizers %v, color %q", names, one.GetFinalizers(), nested(one, "spec", "color"))

	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"parts":5}}`))
	if err := direct.Patch(ctx, one, patch); err != nil {
		return err
	}
	if err := ready(5); err != nil {
		return err
	}
	say("scaled to five, generation %d", one.GetGeneration())

	// Someone deletes a part: the controller makes it again.
	part := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one-0"}}
	if err := direct.Get(ctx, client.ObjectKeyFromObject(part), part); err != nil {
		return err
	}
	old := part.UID
	if err := direct.Delete(ctx, part); err != nil {
		return err
	}
	if err := await(ctx, "the part is back", func() (bool, error) {
		err := direct.Get(ctx, client.ObjectKeyFromObject(part), part)
		return err == nil && part.UID != old, client.IgnoreNotFound(err)
	}); err != nil {
		return err
	}
	say("the part is back")

	if err := direct.Delete(ctx, one, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return err
	}
	if err := await(ctx, "all is gone", func() (bool, error) {
		err := direct.Get(ctx, client.ObjectKeyFromObject(one), one)
		if err == nil || !errors.IsNotFound(err) {
			return false, err
		}
		names, err := parts()
		return len(names) == 0, err
	}); err != nil {
		return err
	}
	say("all is gone")
	return nil
}

type gadgets struct {
	client client.Client
	scheme *runtime.Scheme
	kind   schema.GroupVersionKind
}

// Reconcile makes the parts that a Gadget asks for.
func (g *gadgets) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	gadget := object(g.kind)
	if err := g.client.Get(ctx, request.NamespacedName, gadget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if gadget.GetDeletionTimestamp() != nil {
		if controllerutil.RemoveFinalizer(gadget, finalizer) {
			return ctrl.Result{}, client.IgnoreNotFound(g.client.Update(ctx, gadget))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(gadget, finalizer) {
		return ctrl.Result{}, g.client.Update(ctx, gadget)
	}
	count, _, _ := unstructured.NestedInt64(gadget.Object, "spec", "parts")
	for i := range count {
		part := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: gadget.GetNamespace(), Name: fmt.Sprintf("%s-%d", gadget.GetName(), i),
		}}
		_, err := controllerutil.CreateOrUpdate(ctx, g.client, part, func() error {
			part.Labels = map[string]string{"gadget": gadget.GetName()}
			return controllerutil.SetControllerReference(gadget, part, g.scheme)
		})
		if errors.IsAlreadyExists(err) || errors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	made, _, _ := unstructured.NestedInt64(gadget.Object, "status", "made")
	conditions := []metav1.Condition{}
	meta.SetStatusCondition(&conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Made", Message: "all parts are made"})
	if made == count {
		return ctrl.Result{}, nil
	}
	before := gadget.DeepCopy()
	_ = unstructured.SetNestedField(gadget.Object, count, "status", "made")
	condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[0])
	if err != nil {
		return ctrl.Result{}, err
	}
	_ = unstructured.SetNestedSlice(gadget.Object, []any{condition}, "status", "conditions")
	return ctrl.Result{}, client.IgnoreNotFound(g.client.Status().Patch(ctx, gadget, client.MergeFrom(before)))
}

func object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

func nested(object *unstructured.Unstructured, fields ...string) string {
	text, _, _ := unstructured.NestedString(object.Object, fields...)
	return text
}

func definition(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	least := 0.0
	condition := object(map[string]apiextensionsv1.JSONSchemaProps{
		"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": {Type: "string", Format: "date-time"},
	})
	key := "map"
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: kind.Kind, ListKind: "GadgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": object(map[string]apiextensionsv1.JSONSchemaProps{
							"parts": {Type: "integer", Minimum: &least},
							"color": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)}},
						}),
						"status": object(map[string]apiextensionsv1.JSONSchemaProps{
							"made": {Type: "integer"},
							"conditions": {Type: "array", XListType: &key, XListMapKeys: []string{"type"},
								Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: func() *apiextensionsv1.JSONSchemaProps {
									condition.Required = []string{"type"}
									return &condition
								}()}},
						}),
					},
				}},
			}},
		},
	}
}
