package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// admissionWebhooks serves webhooks of controller-runtime, registers them, and says what becomes of writes.
func admissionWebhooks(ctx context.Context, config *rest.Config, namespace string) error {
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "webhook")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bundle, err := certificate(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()

	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir})
	server.Register("/mutate", &webhook.Admission{Handler: admission.HandlerFunc(mutate)})
	server.Register("/validate", &webhook.Admission{Handler: admission.HandlerFunc(validate)})
	go func() {
		if err := server.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	if err := await(ctx, "the webhook server", func() (bool, error) { return server.StartedChecker()(nil) == nil, nil }); err != nil {
		return err
	}

	quiet := rest.CopyConfig(config)
	quiet.WarningHandler = rest.NoWarnings{}
	silent, err := kubernetes.NewForConfig(quiet)
	if err != nil {
		return err
	}
	config.WarningHandler = warnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := register(ctx, client, namespace, port, bundle); err != nil {
		return err
	}
	defer func() {
		hooks := client.AdmissionregistrationV1()
		hooks.MutatingWebhookConfigurations().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		hooks.ValidatingWebhookConfigurations().Delete(context.Background(), namespace, metav1.DeleteOptions{})
	}()
	return write(ctx, client, silent, namespace)
}

type warnings struct{}

func (warnings) HandleWarningHeader(code int, _ string, text string) {
	say("warning %d: %s", code, text)
}

func mutate(_ context.Context, request admission.Request) admission.Response {
	var object corev1.ConfigMap
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	object.Labels["operation"] = strings.ToLower(string(request.Operation))
	object.Labels["dry-run"] = fmt.Sprint(request.DryRun != nil && *request.DryRun)
	raw, err := json.Marshal(object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, raw)
}

func validate(_ context.Context, request admission.Request) admission.Response {
	var object corev1.ConfigMap
	if len(request.Object.Raw) == 0 {
		return admission.Allowed("").WithWarnings("gone: " + request.Name)
	}
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	switch object.Data["wish"] {
	case "denied":
		return admission.Denied("not today")
	case "error":
		return admission.Errored(http.StatusTeapot, fmt.Errorf("no coffee"))
	}
	return admission.Allowed("").WithWarnings(fmt.Sprintf("%s %s labelled %s", request.Operation, request.Kind.Kind, object.Labels["operation"]))
}

func register(ctx context.Context, client kubernetes.Interface, namespace string, port int, bundle []byte) error {
	here := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
	none := admissionregistration.SideEffectClassNone
	at := func(path string) admissionregistration.WebhookClientConfig {
		url := fmt.Sprintf("https://127.0.0.1:%d%s", port, path)
		return admissionregistration.WebhookClientConfig{URL: &url, CABundle: bundle}
	}
	rules := func(operations ...admissionregistration.OperationType) []admissionregistration.RuleWithOperations {
		return []admissionregistration.RuleWithOperations{{
			Operations: operations,
			Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}
	}
	// Namespaces get a ConfigMap from a controller.
	ours := []admissionregistration.MatchCondition{{Name: "ours", Expression: "request.name != 'kube-root-ca.crt'"}}
	hooks := client.AdmissionregistrationV1()
	_, err := hooks.MutatingWebhookConfigurations().Create(ctx, &admissionregistration.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistration.MutatingWebhook{{
			Name: "mutate.example.com", ClientConfig: at("/mutate"), Rules: rules("CREATE", "UPDATE"), SideEffects: &none,
			NamespaceSelector: here, AdmissionReviewVersions: []string{"v1"}, MatchConditions: ours,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = hooks.ValidatingWebhookConfigurations().Create(ctx, &admissionregistration.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistration.ValidatingWebhook{{
			Name: "validate.example.com", ClientConfig: at("/validate"), Rules: rules("*"), SideEffects: &none,
			NamespaceSelector: here, AdmissionReviewVersions: []string{"v1"}, MatchConditions: ours,
		}},
	}, metav1.CreateOptions{})
	return err
}

func write(ctx context.Context, client, silent kubernetes.Interface, namespace string) error {
	maps := client.CoreV1().ConfigMaps(namespace)
	make := func(name, wish string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"wish": wish}}
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	// Configurations count a moment after they are written. What is said meanwhile depends on the cluster.
	err := await(ctx, "the webhooks", func() (bool, error) {
		_, err := silent.CoreV1().ConfigMaps(namespace).Create(ctx, make("probe", "denied"), dry)
		made, other := silent.CoreV1().ConfigMaps(namespace).Create(ctx, make("probe", ""), dry)
		return err != nil && other == nil && made.Labels["operation"] == "create", nil
	})
	if err != nil {
		return err
	}
	show := func(what string, object *corev1.ConfigMap, err error) {
		if err != nil {
			status := err.(errors.APIStatus).Status()
			say("%s: %d %s %s", what, status.Code, status.Reason, status.Message)
			return
		}
		say("%s: %v", what, object.Labels)
	}
	object, err := maps.Create(ctx, make("a", ""), dry)
	show("dry run", object, err)
	object, err = maps.Create(ctx, make("a", ""), metav1.CreateOptions{})
	show("create", object, err)
	object.Data["more"] = "x"
	object, err = maps.Update(ctx, object, metav1.UpdateOptions{})
	show("update", object, err)
	for _, wish := range []string{"denied", "error"} {
		_, err = maps.Create(ctx, make("b", wish), metav1.CreateOptions{})
		show(wish, nil, err)
	}
	err = maps.Delete(ctx, "a", metav1.DeleteOptions{})
	show("delete", &corev1.ConfigMap{}, err)
	return nil
}

// certificate makes a key and a certificate for 127.0.0.1, signed by itself, where the server looks for them.
func certificate(dir string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), bundle, 0o600); err != nil {
		return nil, err
	}
	return bundle, os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600)
}
