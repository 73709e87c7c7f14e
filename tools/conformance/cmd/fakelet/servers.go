package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// servers are the Pods that are served for real: processes of this program, all on the addresses of this machine. They
// listen on the ports their tests chose, so there is one at a time.
type servers struct {
	dir, etcd string
	config    *rest.Config
	// running has them by the namespaces and names of their Pods.
	running map[string][]*exec.Cmd
}

// prepareNetwork makes the Pods' addresses addresses of this machine.
func (s *servers) prepareNetwork() error {
	if probe, err := net.Listen("tcp", "10.1.0.1:0"); err == nil {
		return probe.Close()
	}
	output, err := exec.Command("ip", "route", "replace", "local", "10.1.0.0/16", "dev", "lo").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip route: %w: %s", err, output)
	}
	return nil
}

// serve starts a Pod's server, if it has one that this program knows.
func (s *servers) serve(ctx context.Context, client corev1.CoreV1Interface, pod *v1.Pod) error {
	container := pod.Spec.Containers[0]
	if len(container.Args) == 0 {
		return nil
	}
	hook := container.Args[0] == "webhook" || container.Args[0] == "crd-conversion-webhook"
	api := container.Name == "sample-apiserver"
	key := pod.Namespace + "/" + pod.Name
	if !hook && !api || s.running[key] != nil {
		return nil
	}
	arguments := append([]string{}, container.Args...)
	if api {
		arguments = append([]string{container.Name}, arguments...)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		dir := filepath.Join(s.dir, key, volume.Name)
		if err := writeSecret(ctx, client, pod.Namespace, volume.Secret.SecretName, dir); err != nil {
			return err
		}
		for _, mount := range container.VolumeMounts {
			for i := range arguments {
				if mount.Name == volume.Name {
					arguments[i] = strings.ReplaceAll(arguments[i], mount.MountPath, dir)
				}
			}
		}
	}
	s.stopAll()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	account := filepath.Join(s.dir, key, "account")
	if err := s.writeAccount(ctx, client, pod, account); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.config.Host, "https://"))
	if err != nil {
		return err
	}
	s.running = map[string][]*exec.Cmd{}
	start := func(command *exec.Cmd) error {
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		log.Print("serving ", command.Args)
		if err := command.Start(); err != nil {
			return err
		}
		s.running[key] = append(s.running[key], command)
		return nil
	}
	patience := 500 * time.Millisecond
	if api {
		patience = 5 * time.Second
		store := exec.Command(s.etcd, append([]string{"--data-dir", filepath.Join(s.dir, key, "etcd")}, pod.Spec.Containers[1].Command[1:]...)...)
		if err := start(store); err != nil {
			return err
		}
	}
	// What ends is started again: it may want what its test makes only later.
	const script = `mount -t tmpfs none /run && d=/run/secrets/kubernetes.io && mkdir -p $d && cp -r "$0" $d/serviceaccount
		while true; do "$@"; sleep 0.5; done`
	command := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, account, self}, arguments...)...)
	command.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	if err := start(command); err != nil {
		return err
	}
	// A Pod that says it is ready must be; what it listens on only its arguments know.
	time.Sleep(patience)
	return nil
}

// writeAccount writes what a Pod finds in /var/run/secrets.
func (s *servers) writeAccount(ctx context.Context, client corev1.CoreV1Interface, pod *v1.Pod, dir string) error {
	token, err := client.ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := rest.LoadTLSFiles(s.config); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, value := range map[string][]byte{
		"token": []byte(token.Status.Token), "ca.crt": s.config.CAData, "namespace": []byte(pod.Namespace),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), value, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeSecret(ctx context.Context, client corev1.CoreV1Interface, namespace, name, dir string) error {
	secret, err := client.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for key, value := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, key), value, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *servers) stop(pod string) {
	if commands := s.running[pod]; commands != nil {
		for _, command := range commands {
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			_ = command.Wait()
		}
		delete(s.running, pod)
		_ = os.RemoveAll(filepath.Join(s.dir, pod))
	}
}

func (s *servers) stopAll() {
	for pod := range s.running {
		s.stop(pod)
	}
}
