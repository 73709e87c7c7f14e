#!/usr/bin/env bash
# kubectl's own tests, the functions of Kubernetes' test/cmd, on a server that runs already: what its hack/make-rules/test-cmd.sh
# does on one that it starts. Runs in a copy of Kubernetes' hack and test, and prints a line for each function and how it went.
#
#   cmd.sh PORT ONLY SKIP LOGS        ONLY and SKIP are expressions of bash that match names of functions
set -o errexit -o nounset -o pipefail
export SECURE_API_PORT=$1 ALLOW_SKEW=1 KUBE_JUNIT_REPORT_DIR=$4/junit
only=$2 skip=$3 logs=$4
# What is said on this is the report.
exec 3>&1

source hack/lib/init.sh
source hack/lib/test.sh
source test/cmd/legacy-script.sh >"${logs}/setup.log" 2>&1

ended=
at_end() {
  stop-proxy >/dev/null 2>&1 || true
  rm -rf "${KUBE_TEMP}"
  [[ -n ${ended} ]] || echo "FAILED runTests: what stands between the functions failed: see ${logs}/setup.log" >&3
}
kube::util::ensure-temp-dir
trap at_end EXIT
# What a user has configured is nothing to these tests.
HOME=${KUBE_TEMP}
# They take some certificate from here.
export TMPDIR=${KUBE_TEMP}
cp hack/testdata/ca/ca.crt "${TMPDIR}/apiserver.crt"
kube::util::ensure-gnu-sed
CONTEXT=test
export SUPPORTED_RESOURCES=("*")

# Our own way to run a function: in a shell of its own, with a log of its own, and not for ever.
record_command() {
  [[ $1 =~ ^(${only})$ && ! $1 =~ ^(${skip})$ ]] || return 0
  local log=${logs}/$1.log how=0
  ("$@") >"${log}" 2>&1 &
  local pid=$!
  timeout 600 tail --pid="${pid}" -f /dev/null || { echo "it took too long" >>"${log}"; kill "${pid}"; }
  wait "${pid}" || how=$?
  if ((how == 0)); then echo "passed $1" >&3; else echo "FAILED $1: see ${log}" >&3; fi
}

# That the server asks for certificates of Kubernetes' test CA is true of Kubernetes' own set-up only.
kube::util::test_client_certificate_authentication_enabled() { true; }

{
  kubectl config set-credentials test-admin --token admin-token
  kubectl config set-cluster local --insecure-skip-tls-verify --server "https://127.0.0.1:${SECURE_API_PORT}"
  kubectl config set-context "${CONTEXT}" --user test-admin --cluster local
  kubectl config use-context "${CONTEXT}"
  # Everybody may do everything, as where these tests come from; the-group is who they ask about.
  kubectl create clusterrolebinding everybody --clusterrole=cluster-admin \
    --group=system:authenticated --group=the-group
  # They expect a server without kinds, classes and nodes of its own, but for one.
  kubectl create -f - <<'POLICY'
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-own-node}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [nodes]}]
  validations:
    - expression: '!has(object.spec.taints) || !object.spec.taints.exists(taint, taint.key == "conductor.io/runs-no-pods")'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-own-node}
spec: {policyName: no-own-node, validationActions: [Deny]}
POLICY
  # Policies keep definitions from being deleted by mistake; this is none.
  kubectl annotate customresourcedefinitions --all --overwrite conductor.io/type-retired=true
  kubectl delete customresourcedefinitions,storageclasses,nodes --all
  kubectl create -f - <<'NODE'
apiVersion: v1
kind: Node
metadata: {name: 127.0.0.1, annotations: {save-managers: "true"}}
status: {capacity: {memory: 1Gi}}
NODE
  # Its controller says that nothing is known of it, which takes a minute.
  kubectl wait --for=condition=Ready=Unknown --timeout=180s node/127.0.0.1
} >>"${logs}/setup.log" 2>&1

runTests >>"${logs}/setup.log" 2>&1
ended=yes
