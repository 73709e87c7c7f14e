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
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// servers are the Pods that are served for real: processes of this program, all on the addresses of this machine. They
// listen on the ports their tests chose, so there is one at a time.
type servers struct {
	dir string
	// running has them by the namespaces and names of their Pods.
	running map[string]*exec.Cmd
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
	known := len(container.Args) > 0 && (container.Args[0] == "webhook" || container.Args[0] == "crd-conversion-webhook")
	key := pod.Namespace + "/" + pod.Name
	if !known || s.running[key] != nil {
		return nil
	}
	arguments := append([]string{}, container.Args...)
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
	// It asks for its account's token and its cluster's address, and uses neither.
	const script = `mount -t tmpfs none /run && d=/run/secrets/kubernetes.io/serviceaccount && mkdir -p $d && echo none >$d/token && exec "$@"`
	command := exec.Command("unshare", append([]string{"--mount", "sh", "-c", script, "sh", self}, arguments...)...)
	command.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	log.Print("serving ", arguments)
	if err := command.Start(); err != nil {
		return err
	}
	s.running = map[string]*exec.Cmd{key: command}
	// A Pod that says it is ready must be; what it listens on only its arguments know.
	time.Sleep(500 * time.Millisecond)
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
	if command := s.running[pod]; command != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		delete(s.running, pod)
		_ = os.RemoveAll(filepath.Join(s.dir, pod))
	}
}

func (s *servers) stopAll() {
	for pod := range s.running {
		s.stop(pod)
	}
}
