//! Who may do what with the kinds of a type: roles that Kubernetes' own gather, and the policies that guard claims.

use serde_json::{Value, json};

use crate::types::model::{Names, ResourceType};

/// On a class: only those who have the verb `use` on it may claim from it.
pub const USE_LABEL: &str = "conductor.io/use";
/// On a claim: who made it. Set by the server, whatever a user writes.
pub const CREATED_BY: &str = "conductor.io/created-by";
/// On a claim: the groups of who made it, separated by commas; see [`groups`].
pub const CREATED_BY_GROUPS: &str = "conductor.io/created-by-groups";

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const POLICY: &str = "admissionregistration.k8s.io/v1";
const LOOK: [&str; 3] = ["get", "list", "watch"];
const WORK: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// The groups in the annotation [`CREATED_BY_GROUPS`]: in a name, a comma is `%2C` and a percent sign `%25`.
pub fn groups(annotation: &str) -> impl Iterator<Item = String> {
    let names = annotation.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace("%2C", ",").replace("%25", "%"))
}

/// A ClusterRole.
pub fn role(name: &str, labels: &[&str], rules: &[Value]) -> Value {
    let mut own = json!({"app.kubernetes.io/managed-by": "conductor"});
    for label in labels {
        own[*label] = "true".into();
    }
    json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name, "labels": own}, "rules": rules})
}

/// A rule.
pub fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

/// What comes with a type, in the order in which it is to be applied.
pub fn access(kind: &ResourceType) -> Vec<Value> {
    let group = kind.group.as_str();
    let plural = |name: &str| Names::plural(name);
    let (resources, claims, classes) =
        (plural(&kind.names.resource), plural(&kind.names.claim), plural(&kind.names.class));
    let name = |part: &str| format!("conductor:{}:{part}", kind.name());
    let status = |own: &str| format!("{own}/status");
    let to = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    let (edit, admin, view) = (to("edit"), to("admin"), to("view"));
    let writes: Vec<&str> = WORK[3..].to_vec();
    let mut all = vec![
        role(&name("claim"), &[&edit, &admin], &[rule(&[group], &[&claims], &writes)]),
        role(&name("view"), &[&view], &[rule(&[group], &[&claims, &status(&claims)], &LOOK)]),
        role(&name("classes"), &["conductor.io/aggregate-to-classes"], &[rule(&[group], &[&classes], &LOOK)]),
        role(
            &name("administer"),
            &["conductor.io/aggregate-to-cluster-admin"],
            &[
                rule(&[group], &[&resources, &classes], &WORK),
                rule(&[group], &[&classes], &["use"]),
                rule(&[group], &[&claims, &status(&claims), &status(&resources)], &LOOK),
            ],
        ),
    ];
    all.extend(guards(&Guarded {
        name: &kind.name(),
        group,
        version: "*",
        claims: &claims,
        class_kind: (&kind.api_version(), &kind.names.class),
        class_resource: (group, &classes),
        class_field: "class",
        class_annotation: "",
        resource_field: "resourceName",
    }));
    all.extend(defaults(kind, &claims));
    all
}

/// Gives a claim that names neither class nor resource the default class at creation, as Kubernetes does with volumes: so that
/// whether it may be used and what it costs is judged there. Claims from before there was a default wait for the managers' word.
fn defaults(kind: &ResourceType, claims: &str) -> Vec<Value> {
    let name = format!("default-class.{}", kind.name());
    // of several that ask to be the default the managers name one, and until they have named one there is none
    let named = "has(params.status) && has(params.status.default) && params.status.default";
    let stands = format!(
        "params.spec.type == '{}' && has(params.spec.default) && params.spec.default && has(params.spec.defaultClass) && {named}",
        kind.name()
    );
    let class = "(has(object.spec) ? [] : [JSONPatch{op: 'add', path: '/spec', value: {}}]) + \
        [JSONPatch{op: 'add', path: '/spec/class', value: params.spec.defaultClass}]";
    let policy = json!({
        "apiVersion": POLICY, "kind": "MutatingAdmissionPolicy", "metadata": meta(&name),
        "spec": {
            // a server that does not know the kind yet takes claims all the same: the managers say the default, too
            "failurePolicy": "Ignore", "reinvocationPolicy": "Never",
            "paramKind": {"apiVersion": "conductor.io/v1alpha1", "kind": "Manager"},
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [kind.group], "apiVersions": ["*"], "operations": ["CREATE"],
                "resources": [claims], "scope": "Namespaced",
            }]},
            "matchConditions": [
                {"name": "names-nothing", "expression": "!has(object.spec) || !(has(object.spec.class) || has(object.spec.resourceName))"},
                {"name": "is-the-default", "expression": stands},
            ],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": class}}],
        },
    });
    let binding = json!({
        "apiVersion": POLICY, "kind": "MutatingAdmissionPolicyBinding", "metadata": meta(&name),
        "spec": {"policyName": name, "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}},
    });
    vec![policy, binding]
}

/// What managers must have to serve a type. Who makes a type of a group of their own gives it to them.
pub fn managing(kind: &ResourceType) -> Value {
    let names = [&kind.names.resource, &kind.names.claim, &kind.names.class].map(|name| Names::plural(name));
    let all: Vec<String> = names.iter().flat_map(|name| [name.clone(), format!("{name}/status")]).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let rule = rule(&[kind.group.as_str()], &all, &[&WORK[..], &["use"]].concat());
    role(&format!("conductor:{}:manage", kind.name()), &["conductor.io/aggregate-to-managers"], &[rule])
}

/// The kinds that policies guard.
pub struct Guarded<'g> {
    /// The type's name.
    pub name: &'g str,
    /// The claims' group.
    pub group: &'g str,
    /// The claims' version.
    pub version: &'g str,
    /// The claims' plural.
    pub claims: &'g str,
    /// apiVersion and kind of classes.
    pub class_kind: (&'g str, &'g str),
    /// Group and plural of classes.
    pub class_resource: (&'g str, &'g str),
    /// The field of a claim's spec that names its class.
    pub class_field: &'g str,
    /// The annotation that names it as well, as PersistentVolumeClaims once did; empty: none.
    pub class_annotation: &'g str,
    /// The field of a claim's spec that names a resource.
    pub resource_field: &'g str,
}

/// The policies that guard a type's claims.
pub fn guards(own: &Guarded<'_>) -> Vec<Value> {
    let rules = json!([{
        "apiGroups": [own.group], "apiVersions": [own.version], "operations": ["CREATE", "UPDATE"],
        "resources": [own.claims], "scope": "Namespaced",
    }]);
    // a status may carry metadata, too
    let mut of_all = rules.clone();
    of_all[0]["resources"] = json!([own.claims, format!("{}/status", own.claims)]);
    let mut all = creators(own, &of_all);
    all.extend(uses(own, &rules));
    all.extend(stays(own));
    all
}

/// A class that is not for everybody is not deleted before that is said to end: what there is of it would be anybody's at once.
fn stays(own: &Guarded<'_>) -> Vec<Value> {
    let name = format!("use-stays.{}", own.name);
    let (group, classes) = own.class_resource;
    let message = format!(
        "what there is of this class would be for everybody, not for those who have the verb use on it alone: see that nothing is left of it, then remove its label {USE_LABEL} (kubectl label {classes}.{group} NAME {USE_LABEL}-), then delete it"
    );
    let policy = json!({
        "apiVersion": POLICY, "kind": "ValidatingAdmissionPolicy", "metadata": meta(&name),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "objectSelector": {"matchLabels": {USE_LABEL: "required"}},
                "resourceRules": [{"apiGroups": [group], "apiVersions": ["*"], "operations": ["DELETE"], "resources": [classes]}],
            },
            "validations": [{"expression": "false", "message": message, "reason": "Forbidden"}],
        },
    });
    let binding = json!({
        "apiVersion": POLICY, "kind": "ValidatingAdmissionPolicyBinding", "metadata": meta(&name),
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    vec![policy, binding]
}

fn meta(name: &str) -> Value {
    json!({"name": name, "labels": {"app.kubernetes.io/managed-by": "conductor"}})
}

/// Says on each claim who made it. A later write cannot change it: what was there is put back.
fn creators(own: &Guarded<'_>, rules: &Value) -> Vec<Value> {
    let name = format!("created-by.{}", own.name);
    let said = |object: &str, key: &str| {
        format!(
            "has({object}.metadata.annotations) && '{key}' in {object}.metadata.annotations ? {object}.metadata.annotations['{key}'] : ''"
        )
    };
    let made =
        |made: &str, key: &str| format!("request.operation == 'CREATE' ? ({made}) : ({})", said("oldObject", key));
    // A group whose own name has a comma (LDAP's do) must not be read as several: see `groups`, which undoes it.
    let groups = "has(request.userInfo.groups) ? \
        request.userInfo.groups.map(g, g.replace('%', '%25').replace(',', '%2C')).join(',') : ''";
    let (user, groups) = (made("request.userInfo.username", CREATED_BY), made(groups, CREATED_BY_GROUPS));
    let variable = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    // not all new claims: what changes something is asked again, and must then find nothing to do
    let condition = format!(
        "({}) != ({user}) || ({}) != ({groups})",
        said("object", CREATED_BY),
        said("object", CREATED_BY_GROUPS)
    );
    // not an applied configuration: a server that has not heard of a new version yet could not apply one
    let add = |path: String, value: &str| format!("JSONPatch{{op: 'add', path: {path}, value: {value}}}");
    let below = |key: &str| format!("'/metadata/annotations/' + jsonpatch.escapeKey('{key}')");
    let expression = format!(
        "(has(object.metadata.annotations) ? [] : [{}]) + [{}, {}]",
        add("'/metadata/annotations'".into(), "{}"),
        add(below(CREATED_BY), "variables.user"),
        add(below(CREATED_BY_GROUPS), "variables.groups"),
    );
    let policy = json!({
        "apiVersion": POLICY, "kind": "MutatingAdmissionPolicy", "metadata": meta(&name),
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "said-otherwise", "expression": condition}],
            "variables": [variable("user", &user), variable("groups", &groups)],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    });
    let binding = json!({
        "apiVersion": POLICY, "kind": "MutatingAdmissionPolicyBinding", "metadata": meta(&name),
        "spec": {"policyName": name},
    });
    vec![policy, binding]
}

/// Classes with the label may be used by those who have the verb only. Of which class a resource is that a claim names is for the
/// managers to see: they ask whether who made the claim may use it. Whoever names one on somebody else's claim needs the verb on all
/// of them.
fn uses(own: &Guarded<'_>, rules: &Value) -> Vec<Value> {
    let name = format!("use.{}", own.name);
    let field = |object: &str, field: &str| {
        format!("has({object}.spec) && has({object}.spec.{field}) ? {object}.spec.{field} : ''")
    };
    let annotated = |object: &str, key: &str| {
        let all = format!("{object}.metadata.annotations");
        if key.is_empty() { "''".to_owned() } else { format!("has({all}) && '{key}' in {all} ? {all}['{key}'] : ''") }
    };
    let (class, resource) = (field("object", own.class_field), field("object", own.resource_field));
    let same = format!(
        "oldObject != null && ({}) == variables.class && ({}) == variables.annotated && ({}) == variables.resource",
        field("oldObject", own.class_field),
        annotated("oldObject", own.class_annotation),
        field("oldObject", own.resource_field)
    );
    let foreign = format!(
        "oldObject != null && ({}) != variables.resource && ({}) != request.userInfo.username",
        field("oldObject", own.resource_field),
        annotated("oldObject", CREATED_BY)
    );
    let (group, classes) = own.class_resource;
    let expression = format!(
        "variables.same || \
         (variables.class != params.metadata.name && variables.annotated != params.metadata.name && !variables.foreign) || \
         authorizer.group('{group}').resource('{classes}').name(params.metadata.name).check('use').allowed()"
    );
    let message = format!(
        "'class ' + params.metadata.name + ' is for those who have the verb use on it (kubectl auth can-i use {classes}.{group}/' + params.metadata.name + '): ask an administrator, or choose another class'"
    );
    let policy = json!({
        "apiVersion": POLICY, "kind": "ValidatingAdmissionPolicy", "metadata": meta(&name),
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": own.class_kind.0, "kind": own.class_kind.1},
            "matchConstraints": {"resourceRules": rules},
            "variables": [
                {"name": "class", "expression": class},
                {"name": "annotated", "expression": annotated("object", own.class_annotation)},
                {"name": "resource", "expression": resource},
                {"name": "foreign", "expression": foreign},
                {"name": "same", "expression": same},
            ],
            "validations": [{"expression": expression, "messageExpression": message, "reason": "Forbidden"}],
        },
    });
    let binding = json!({
        "apiVersion": POLICY, "kind": "ValidatingAdmissionPolicyBinding", "metadata": meta(&name),
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "paramRef": {"selector": {"matchLabels": {USE_LABEL: "required"}}, "parameterNotFoundAction": "Allow"},
        },
    });
    vec![policy, binding]
}

#[cfg(test)]
mod tests {
    #[test]
    fn groups_are_kept_apart() {
        for (annotation, expected) in [
            ("", &[][..]),
            ("devs,system:authenticated", &["devs", "system:authenticated"]),
            ("cn=devs%2Cdc=example,100%25%2C,%252C", &["cn=devs,dc=example", "100%,", "%2C"]),
        ] {
            assert_eq!(super::groups(annotation).collect::<Vec<_>>(), expected);
        }
    }
}
