//! What is refused at admission, as a table.

use conductor_claims::review::{Operation, Request, Snapshot, Verdict, review, standing};
use conductor_claims::types::{ResourceType, builtin_types};
use serde_json::{Value, json};

fn types() -> Vec<ResourceType> {
    builtin_types().expect("types").iter().map(|t| ResourceType::parse(t).expect("a type")).collect()
}

/// The first field refused, or "" if it goes through.
fn check(operation: Operation, object: Value, old: Value, managers: &[Value], claims: usize, expected: &str) {
    let types = types();
    let snapshot = Snapshot { types: &types, managers, claims, ..Snapshot::default() };
    let verdict = review(&Request { operation, object: &object, old: &old }, &snapshot);
    let field = match &verdict {
        Verdict::Allow(_) => "",
        Verdict::Refuse(errors) if errors[0].field.is_empty() => "object",
        Verdict::Refuse(errors) => &errors[0].field,
    };
    assert_eq!(field, expected, "{object} {old}: {verdict:?}");
}

fn of(kind: &str, body: Value) -> Value {
    let mut object = body;
    object["apiVersion"] = json!("storage.conductor.io/v1alpha1");
    object["kind"] = json!(kind);
    object
}

#[test]
fn resources_claims_and_classes() {
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    let resource = |spec: Value| of("RelationalDatabase", json!({"spec": spec}));
    create(resource(json!({"engine": "mysql"})), "");
    create(resource(json!({})), "spec.engine");
    create(
        resource(json!({"engine": "mysql", "highlyAvailable": true, "highly-available": true})),
        "spec.highlyAvailable",
    );
    create(resource(json!({"engine": "mysql", "claimRefs": [{"name": "a"}, {"name": "b"}]})), "spec.claimRefs");
    let refs = json!([{"uid": "1", "amounts": {"storage": "6Gi"}}, {"uid": "2", "amounts": {"storage": "5Gi"}}]);
    create(
        resource(json!({"engine": "mysql", "maxClaims": 2, "capacity": {"storage": "10Gi"}, "claimRefs": refs})),
        "spec.claimRefs",
    );
    create(
        resource(json!({"engine": "mysql", "maxClaims": 2, "capacity": {"storage": "11Gi"}, "claimRefs": refs})),
        "",
    );
    create(resource(json!({"engine": "mysql", "template": {"kind": "A"}})), "spec.template.apiVersion");

    // a class that claims from itself never comes to an end
    let mirror = |name: &str, template: Value| {
        of("BucketClass", json!({"metadata": {"name": name}, "spec": {"template": template}}))
    };
    for (class, expected) in
        [("mirror", "spec.template.spec.class"), ("${claim.spec.class}", "spec.template.spec.class"), ("other", "")]
    {
        create(mirror("mirror", of("BucketClaim", json!({"spec": {"class": class}}))), expected);
    }

    let claim = |spec: Value| of("RelationalDatabaseClaim", json!({"spec": spec}));
    create(claim(json!({})), "");
    create(claim(json!({"version": ">="})), "spec.version");
    create(claim(json!({"version": "not a range"})), "spec.version");
    create(claim(json!({"version": "latest"})), "");
    create(claim(json!({"version": ">= 8 <9"})), "");
    create(
        resource(json!({"engine": "mysql", "implementationRef": {"name": "a"}})),
        "spec.implementationRef.apiVersion",
    );
    create(
        claim(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}})),
        "spec.selector.matchExpressions[0].operator",
    );
    create(claim(json!({"selector": {"matchLabels": {"bad key!": "x"}}})), "spec.selector.matchLabels.bad key!");
    create(
        claim(json!({"selector": {"matchLabels": {"example.com/tier": "a b"}}})),
        "spec.selector.matchLabels.example.com/tier",
    );
    create(claim(json!({"selector": {"matchLabels": {"example.com/tier": "", "b": "x_1.y"}}})), "");
    create(
        claim(json!({"resources": {"requests": {"storage": "5Gi"}, "limits": {"storage": "4Gi"}}})),
        "spec.resources.limits.storage",
    );
    let update = |old: Value, new: Value, expected: &str| check(Operation::Update, new, old, &[], 0, expected);
    update(claim(json!({})), claim(json!({"resourceName": "a"})), "");
    update(claim(json!({"resourceName": "a"})), claim(json!({"resourceName": "b"})), "spec.resourceName");
    let mut bound = claim(json!({"engine": "mysql"}));
    bound["status"] = json!({"phase": "Bound"});
    update(bound.clone(), claim(json!({"engine": "postgres"})), "spec.engine");
    // what was a number may be quoted, and be no other one then
    bound["spec"] = json!({"version": 5.1});
    update(bound.clone(), claim(json!({"version": "5.1"})), "");
    update(bound, claim(json!({"version": "5.10"})), "spec.version");
    update(claim(json!({"engine": "mysql"})), claim(json!({"engine": "postgres"})), "");

    let template = json!({"apiVersion": "a/v1", "kind": "B"});
    create(of("RelationalDatabaseClass", json!({"reclaimPolicy": "Retain", "template": template})), "");
    create(of("RelationalDatabaseClass", json!({"spec": {"reclaimPolicy": "Retain", "template": template}})), "");
    create(
        of("RelationalDatabaseClass", json!({"reclaimPolicy": "Retain", "spec": {"template": template}})),
        "reclaimPolicy",
    );
    create(
        of("RelationalDatabaseClass", json!({"template": {"apiVersion": "a/v1", "kind": "${claim.spec.x}"}})),
        "template.kind",
    );
    create(
        of("RelationalDatabaseClass", json!({"offers": {"capacity": {"storage": {"max": "many"}}}})),
        "offers.capacity.storage.max",
    );
}

#[test]
fn expressions_are_checked_where_they_are_written() {
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    let claim = |e: &str| of("RelationalDatabaseClaim", json!({"spec": {"expression": e}}));
    for fine in [
        "resource.spec.engine == 'mysql'",
        "self.metadata.labels['zone'] == 'a' && claim.spec.?version.hasValue()",
        "quantity(resource.spec.capacity.storage).compareTo(quantity('5Gi')) > 0",
        "resource.spec['engine'] == 'mysql'",
        "",
    ] {
        create(claim(fine), "");
    }
    for wrong in [
        "resource.spec.engnie == 'mysql'",
        "resource.spec.engine",
        "'a' + 'b'",
        "resource.spec. ==",
        "clam.spec",
        // matching does not know these
        "resource.spec.reclaimPolicy == 'Delete'",
        "resource.status.phase == 'Available'",
        "resource.metadata.annotations['a'] == 'b'",
        "resource.spec.engine > 5",
        "resource.spec.highlyAvailable == 'yes'",
        "resource.spec.highly__dash__available",
        "claim.metadata.name.size() == 'a'",
    ] {
        create(claim(wrong), "spec.expression");
    }
    create(claim("resource.spec.highlyAvailable"), "");
    let class = |body: Value| of("RelationalDatabaseClass", json!({"spec": body}));
    let template = |size: &str| json!({"apiVersion": "a/v1", "kind": "B", "spec": {"sizes": [{"size": size}]}});
    create(class(json!({"template": template("${claim.spec.resources.requests.storage}-${class.metadata.name}")})), "");
    create(class(json!({"template": template("${resource.metadata.name}")})), "");
    for wrong in ["${claim.spec.resources.requests.storge}", "${implementation.status}", "${claim.spec.engine +}"] {
        create(class(json!({"template": template(wrong)})), "spec.template.spec.sizes[0].size");
        let several = json!({"templates": [{"name": "a", "template": template(wrong)}]});
        create(class(several), "spec.templates[0].template.spec.sizes[0].size");
    }
    create(class(json!({"readyWhen": "implementation.status.ready == resource.spec.maxClaims"})), "");
    create(class(json!({"readyWhen": "claim.spec.engine == 'mysql'"})), "spec.readyWhen");
    create(class(json!({"readyWhen": "'yes'"})), "spec.readyWhen");
    let several = json!({"templates": [{"name": "a", "template": template("x"), "readyWhen": "1"}]});
    create(class(several), "spec.templates[0].readyWhen");
    create(class(json!({"connection": {"host": "implementation.status.host", "uri": "x://${secret.password}"}})), "");
    create(class(json!({"connection": {"host": "implementation.status."}})), "spec.connection.host");
    create(class(json!({"connection": {"a b": "'x'"}})), "spec.connection.a b");
    create(class(json!({"connection": {"x": "a ${not closed"}})), "spec.connection.x");
    create(
        class(json!({"template": template("${resource.metadata.name + claim.metadata.name}")})),
        "spec.template.spec.sizes[0].size",
    );
    create(class(json!({"connection": {"uri": "x://${password}"}})), "spec.connection.uri");
    create(class(json!({"offers": {"engine": "${claim.spec.engine}", "capacity": {"storage": "${'5Gi'}"}}})), "");
    create(class(json!({"offers": {"engine": "${resource.spec.engine}"}})), "spec.offers.engine");
    create(class(json!({"offers": {"engine": "${claim.spec.engine"}})), "spec.offers.engine");
    create(
        class(json!({"offers": {"capacity": {"storage": {"min": "10Gi", "max": "1Gi"}}}})),
        "spec.offers.capacity.storage.max",
    );
    create(class(json!({"offers": {"capacity": {"storage": "${claim.spec.size}"}}})), "spec.offers.capacity.storage");
    for (offer, field) in [
        (json!({"mim": "1Gi"}), "spec.offers.capacity.storage.mim"),
        (json!({"min": "1Gi", "max": "4Gi", "step": "1Gi"}), "spec.offers.capacity.storage.step"),
        (json!({"min": -1}), "spec.offers.capacity.storage.min"),
        (json!("-1Gi"), "spec.offers.capacity.storage"),
        (json!(["1Gi", "-1Gi"]), "spec.offers.capacity.storage[1]"),
        (json!([]), "spec.offers.capacity.storage"),
        (json!(["1Gi", "2Gi"]), ""),
        (json!({"min": 0}), ""),
        (json!({"min": "1Gi", "max": "4Gi", "default": "2Gi"}), ""),
        (json!({"min": "1Gi", "max": "4Gi", "default": "5Gi"}), "spec.offers.capacity.storage.default"),
        (json!({"min": "1Gi", "default": "1Mi"}), "spec.offers.capacity.storage.default"),
    ] {
        create(class(json!({"offers": {"capacity": {"storage": offer}}})), field);
    }
    create(class(json!({"offers": {"version": ">= 5"}})), "spec.offers.version");
    create(class(json!({"offers": {"version": ["5.6", "5.x || 6"]}})), "spec.offers.version[1]");
    create(class(json!({"offers": {"version": ["5.6", 8, "8.0.1-rc.1"]}})), "");
    create(class(json!({"offers": {"engine": []}})), "spec.offers.engine");
    // what an expression yields must be what its place takes, as far as the type says what it names
    for (offers, field) in [
        (json!({"engine": "${claim.spec.highlyAvailable}"}), "spec.offers.engine"),
        (json!({"engine": "${claim.spec.engine + 1}"}), "spec.offers.engine"),
        (json!({"engine": "my-${claim.spec.engine}"}), "spec.offers.engine"),
        (json!({"engine": "${claim.spec.engine}${claim.metadata.name}"}), "spec.offers.engine"),
        (json!({"engine": ["mysql", "${claim.spec.engine}"]}), "spec.offers.engine[1]"),
        (json!({"highlyAvailable": "${claim.spec.engine}"}), "spec.offers.highlyAvailable"),
        (json!({"highlyAvailable": "${claim.spec.engine == 'mysql'}"}), ""),
        (json!({"version": "${true}"}), "spec.offers.version"),
        (json!({"version": "${claim.spec.version}"}), ""),
        (json!({"capacity": {"storage": "${claim.spec.highlyAvailable}"}}), "spec.offers.capacity.storage"),
        (json!({"capacity": {"storage": "${[claim.spec.engine]}"}}), "spec.offers.capacity.storage"),
        (json!({"capacity": {"storage": "${claim.spec.resources.requests.storage}"}}), ""),
    ] {
        create(class(json!({"offers": offers})), field);
    }
    for (wrong, refused) in [
        ("${claim.spec.engine + 1}", true),
        ("${claim.spec.engine && true}", true),
        ("${claim.spec.engine.name}", true),
        ("${claim.metadata.name + 1}", true),
        ("${claim.metadata.nmae}", true),
        ("${class.metadata.name * 2}", true),
        ("${size(resource.metadata.name) > 'x'}", true),
        ("x-${claim.metadata.labels}", true),
        ("x-${claim.spec}", true),
        ("${claim.spec.highly__dash__available}", true),
        // read as they are: maps, and anything may be null
        ("${claim.spec['highly-available']}", false),
        ("${'engine' in claim.spec}", false),
        ("${has(claim.spec.engine) ? claim.spec.engine : null}", false),
        ("${claim.spec.?engine.orValue('x')}", false),
        ("${{'a': claim.spec.engine, 'b': 1, 'c': [1, 'x']}}", false),
        ("${claim.metadata.labels}", false),
        ("x-${claim.spec.engine}-${claim.spec.highlyAvailable}", false),
        ("${string(claim.spec.version)}", false),
        ("${claim.metadata.annotations['a'] + '-' + claim.metadata.namespace}", false),
    ] {
        let expected = if refused { "spec.template.spec.sizes[0].size" } else { "" };
        create(class(json!({"template": template(wrong)})), expected);
    }
    let labelled = |value: Value| {
        let mut labelled = template("1");
        labelled["metadata"] = json!({"label": "foo", "labels": {"a": value}});
        class(json!({"template": labelled}))
    };
    create(labelled(json!("${claim.spec.engine}")), "");
    create(labelled(json!("${claim.spec.highlyAvailable}")), "spec.template.metadata.labels.a");
    create(labelled(json!(1)), "spec.template.metadata.labels.a");
    create(class(json!({"connection": {"password": "secret.password + 1"}})), "spec.connection.password");
    create(class(json!({"connection": {"port": "5432", "password": "secret.password"}})), "");
    // what a class says of itself, under spec and at the top
    for path in ["class.parameters", "class.spec.parameters"] {
        let fields =
            |name: &str| json!({"parameters": {"size": 1}, "template": template(&format!("${{{path}.{name}}}"))});
        create(class(fields("size")), "");
        create(class(fields("sise")), "spec.template.spec.sizes[0].size");
        create(of("RelationalDatabaseClass", fields("size")), "");
        create(of("RelationalDatabaseClass", fields("sise")), "template.spec.sizes[0].size");
        create(class(json!({"template": template(&format!("${{{path}.size}}"))})), "spec.template.spec.sizes[0].size");
        create(class(json!({"template": template(&format!("${{has({path}.size) ? {path}.size : 1}}"))})), "");
    }
    create(class(json!({"template": template("${resource.status.phase}")})), "spec.template.spec.sizes[0].size");
    let mut elsewhere = template("1");
    elsewhere["metadata"] = json!({"namespace": "default"});
    create(class(json!({"template": elsewhere})), "spec.template.metadata.namespace");
    elsewhere["metadata"] = json!({"namespace": "conductor-system"});
    create(class(json!({"template": elsewhere})), "");
    // connection details of any of several implementations
    let several = |host: &str| {
        json!({
            "templates": [{"name": "data", "template": template("1")}, {"name": "svc", "template": template("1")}],
            "connection": {"host": host},
        })
    };
    create(class(several("implementations.svc.spec.clusterIP")), "");
    create(class(several("x-${implementations.data.spec.a}")), "");
    create(class(several("implementations.service.spec.clusterIP")), "spec.connection.host");
    create(class(json!({"connection": {"host": "implementations.svc.spec.a"}})), "spec.connection.host");
    // an implementation that is there is adopted, or one is made
    let adopting = |more: Value| {
        let mut spec =
            json!({"engine": "mysql", "implementationRef": {"apiVersion": "a/v1", "kind": "B", "name": "b"}});
        for (key, value) in more.as_object().expect("fields") {
            spec[key] = value.clone();
        }
        of("RelationalDatabase", json!({"spec": spec}))
    };
    create(adopting(json!({})), "");
    create(adopting(json!({"template": template("1")})), "spec.implementationRef");
    let elsewhere = json!({"apiVersion": "a/v1", "kind": "B", "name": "b", "namespace": "kube-system"});
    create(adopting(json!({"implementationRef": elsewhere})), "spec.implementationRef.namespace");
    // a resource has no claim
    let resource =
        |size: &str| of("RelationalDatabase", json!({"spec": {"engine": "mysql", "template": template(size)}}));
    create(resource("${resource.spec.capacity.storage}"), "");
    create(resource("${claim.spec.engine}"), "spec.template.spec.sizes[0].size");
    // what was let through once stops nobody
    let update = |old: Value, new: Value, expected: &str| check(Operation::Update, new, old, &[], 0, expected);
    let mut labelled = resource("${claim.spec.engine}");
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    update(resource("${claim.spec.engine}"), labelled, "");
    update(resource("x"), resource("${claim.spec.engine}"), "spec.template.spec.sizes[0].size");
    let volumes = |spec: Value| json!({"apiVersion": "conductor.io/v1alpha1", "kind": "VolumeTemplate", "spec": spec});
    create(volumes(json!({"template": template("${claim.spec.resources.requests.storage}")})), "");
    create(volumes(json!({"template": template("${resource.spec}")})), "spec.template.spec.sizes[0].size");
    create(
        volumes(json!({"template": template("x"), "volume": {"nfs": {"server": "${implementation.status.host}"}}})),
        "",
    );
    create(
        volumes(json!({"template": template("x"), "volume": {"nfs": {"server": "${host}"}}})),
        "spec.volume.nfs.server",
    );
}

#[test]
fn bound_claims_grow_where_their_class_lets_them_and_never_shrink() {
    let types = types();
    let claim = |resources: Value| {
        let mut claim = of("RelationalDatabaseClaim", json!({"spec": {"resources": resources}}));
        claim["status"] = json!({"phase": "Bound", "class": "a", "capacity": {"storage": "2Gi"}});
        claim
    };
    let growing = json!({"metadata": {"name": "a"}, "spec": {"allowExpansion": true}});
    let fixed = json!({"metadata": {"name": "a"}, "reclaimPolicy": "Delete"});
    let old = claim(json!({"requests": {"storage": "1Gi"}, "limits": {"storage": "9Gi"}}));
    let check = |resources: Value, class: Option<&Value>, expected: &str| {
        let snapshot = Snapshot { types: &types, class, ..Snapshot::default() };
        let new = claim(resources);
        let verdict = review(&Request { operation: Operation::Update, object: &new, old: &old }, &snapshot);
        let said = match &verdict {
            Verdict::Allow(_) => String::new(),
            Verdict::Refuse(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{new}: {said}");
    };
    let asks = |size: &str| json!({"requests": {"storage": size}, "limits": {"storage": "9Gi"}});
    check(asks("3Gi"), Some(&growing), "");
    check(asks("3Gi"), None, "");
    check(asks("3Gi"), Some(&fixed), "class a does not let what it made grow");
    // it has that much already
    check(asks("2Gi"), Some(&fixed), "");
    check(asks("500Mi"), Some(&growing), "may not be lowered from 1Gi to 500Mi");
    check(json!({"limits": {"storage": "9Gi"}}), Some(&growing), "may not be lowered");
    check(asks("10Gi"), Some(&growing), "is less than the request");
    check(
        json!({"requests": {"storage": "1Gi"}, "limits": {"storage": "1Gi"}}),
        Some(&growing),
        "is less than the 2Gi",
    );
}

#[test]
fn a_number_for_a_version_is_advised_against() {
    let types = types();
    let snapshot = Snapshot { types: &types, ..Snapshot::default() };
    let object = of("RelationalDatabase", json!({"spec": {"engine": "mysql", "version": 5.6}}));
    let verdict = review(&Request { operation: Operation::Create, object: &object, old: &Value::Null }, &snapshot);
    assert!(matches!(verdict, Verdict::Allow(warnings) if warnings.len() == 1));
}

#[test]
fn what_rules_nothing_out_is_said() {
    let types = types();
    let snapshot = Snapshot { types: &types, ..Snapshot::default() };
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]);
    let spec = json!({"engine": "mysql", "topology": {"nodeSelectorTerms": terms}});
    let object = of("RelationalDatabase", json!({"spec": spec}));
    let verdict = review(&Request { operation: Operation::Create, object: &object, old: &Value::Null }, &snapshot);
    assert!(
        matches!(verdict, Verdict::Allow(warnings) if warnings.len() == 1 && warnings[0].contains("spec.topology"))
    );
}

#[test]
fn types_and_managers() {
    let taken = |names: Value| {
        json!({"apiVersion": "conductor.io/v1alpha1", "kind": "ResourceType", "metadata": {"name": "fakes.example.com"},
            "spec": {"group": "example.com", "version": "v1", "names": names}})
    };
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    create(taken(json!({"resource": "Fake"})), "");
    create(taken(json!({"resource": "Fake", "claim": "BucketClaim"})), "spec.names");
    // connection objects are named after the resource
    let mut pail = taken(json!({"resource": "Bucket", "claim": "PailClaim", "class": "PailClass"}));
    pail["metadata"]["name"] = json!("buckets.example.com");
    create(pail, "spec.names.resource");
    create(taken(json!({"resource": "Fake", "shortNames": {"claim": "rdbc"}})), "spec.names");
    let database = &builtin_types().expect("types")[0];
    check(Operation::Create, database.clone(), Value::Null, &[], 0, "");
    check(Operation::Delete, Value::Null, database.clone(), &[], 0, "");
    check(Operation::Delete, Value::Null, database.clone(), &[], 3, "object");
    let mut changed = database.clone();
    changed["spec"]["attributes"]["engine"]["type"] = json!("boolean");
    check(Operation::Update, changed, database.clone(), &[], 0, "spec.attributes.engine.type");
    let mut thief = database.clone();
    (thief["spec"]["names"]["resource"], thief["metadata"]["name"]) =
        (json!("Store"), json!("stores.storage.conductor.io"));
    check(Operation::Create, thief, Value::Null, &[], 0, "spec.names");

    let manager = |name: &str, made: &str, default: bool, classes: &[&str]| {
        json!({"apiVersion": "conductor.io/v1alpha1", "kind": "Manager", "metadata": {"name": name, "creationTimestamp": made},
            "spec": {"type": "buckets.storage.conductor.io", "default": default,
                "classes": classes.iter().map(|c| json!({"name": c})).collect::<Vec<_>>()}})
    };
    let old = manager("old", "2026-01-01T00:00:00Z", true, &["gold"]);
    check(
        Operation::Create,
        manager("new", "2026-02-01T00:00:00Z", false, &["silver"]),
        Value::Null,
        std::slice::from_ref(&old),
        0,
        "",
    );
    check(
        Operation::Create,
        manager("new", "2026-02-01T00:00:00Z", true, &[]),
        Value::Null,
        std::slice::from_ref(&old),
        0,
        "spec.default",
    );
    check(
        Operation::Create,
        manager("new", "2026-02-01T00:00:00Z", false, &["gold"]),
        Value::Null,
        std::slice::from_ref(&old),
        0,
        "spec.classes",
    );
    let mut lone = manager("lone", "2026-02-01T00:00:00Z", false, &["gold"]);
    lone["spec"]["defaultClass"] = json!("silver");
    check(Operation::Create, lone, Value::Null, &[], 0, "spec.defaultClass");
    // which StorageClass stands in is said on it; one that says it elsewhere from before can still be changed
    let mut volumes = manager("volumes", "2026-02-01T00:00:00Z", true, &["gold"]);
    volumes["spec"]["type"] = json!("persistentvolumes");
    check(Operation::Create, volumes.clone(), Value::Null, &[], 0, "");
    volumes["spec"]["defaultClass"] = json!("gold");
    check(Operation::Create, volumes.clone(), Value::Null, &[], 0, "spec.defaultClass");
    check(Operation::Update, volumes.clone(), volumes, &[], 0, "");

    // what slipped through admission together: the older stands
    let young = manager("a-young", "2026-02-01T00:00:00Z", true, &["gold", "iron"]);
    let all = [young.clone(), old.clone()];
    assert_eq!((standing(&old, &all).default, standing(&old, &all).classes), (true, vec!["gold".to_owned()]));
    let lost = standing(&young, &all);
    assert_eq!((lost.default, lost.classes, lost.conflicts.len()), (false, vec!["iron".to_owned()], 2));
}

#[test]
fn consumers_name_claims_of_their_own_namespace() {
    let pod = |claims: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {"conductor.io/claims": claims}}});
    let create = |object: Value, expected: &str| check(Operation::Create, object, Value::Null, &[], 0, expected);
    create(pod("RelationalDatabaseClaim/db, BucketClaim/b"), "");
    create(pod("other/RelationalDatabaseClaim/db"), "metadata.annotations.conductor.io/claims");
    let ingress = |claim: &str| json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"annotations": {"network.conductor.io/claim": claim}}});
    create(ingress("web"), "");
    create(ingress("other/web"), "metadata.annotations.network.conductor.io/claim");
}

#[test]
fn what_claims_use_stays_what_they_were_given() {
    let types = types();
    let resource = |spec: Value| {
        let mut resource = of("RelationalDatabase", json!({"spec": spec}));
        let reference =
            json!({"name": "a", "namespace": "n", "uid": "u", "amounts": {"storage": "800Mi"}, "by": "Manager"});
        resource["spec"]["claimRefs"] = json!([reference]);
        resource["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
        resource
    };
    let template = |kind: &str, size: &str| json!({"apiVersion": "a.example/v1", "kind": kind, "spec": {"size": size}});
    let check = |spec: Value, expected: &str| {
        let old = resource(json!({"engine": "mysql", "capacity": {"storage": "1Gi"}, "template": template("A", "1")}));
        let snapshot = Snapshot { types: &types, ..Snapshot::default() };
        let new = resource(spec);
        let verdict = review(&Request { operation: Operation::Update, object: &new, old: &old }, &snapshot);
        let fields: Vec<String> = match verdict {
            Verdict::Refuse(errors) => errors.iter().map(|error| error.field.to_string()).collect(),
            _ => Vec::new(),
        };
        assert_eq!(fields.join(" "), expected);
    };
    let spec = |engine: &str, size: &str, template: Value| json!({"engine": engine, "capacity": {"storage": size}, "template": template});
    check(spec("mysql", "1Gi", template("A", "2")), "");
    check(spec("mysql", "900Mi", template("A", "1")), "");
    check(spec("mysql", "2Gi", template("A", "1")), "");
    check(spec("mysql", "500Mi", template("A", "1")), "spec.capacity.storage");
    check(spec("postgres", "1Gi", template("A", "1")), "spec.engine");
}

/// What is behind a resource is known by its templates: others in their place would leave it to nobody.
#[test]
fn what_is_behind_a_resource_is_not_exchanged() {
    let types = types();
    let resource = |spec: &Value, uid: Option<&str>| {
        let mut resource = of("RelationalDatabase", json!({"spec": spec}));
        resource["spec"]["engine"] = json!("mysql");
        resource["status"] = json!({"phase": "Available", "implementations": [{"name": "a", "uid": uid}]});
        resource
    };
    let check = |old: Value, new: Value, expected: &str| {
        for (uid, expected) in [(Some("u"), expected), (None, "")] {
            let snapshot = Snapshot { types: &types, ..Snapshot::default() };
            let (old, new) = (resource(&old, uid), resource(&new, uid));
            let verdict = review(&Request { operation: Operation::Update, object: &new, old: &old }, &snapshot);
            let fields: Vec<String> = match verdict {
                Verdict::Refuse(errors) => errors.iter().map(|error| error.field.to_string()).collect(),
                _ => Vec::new(),
            };
            assert_eq!(fields.join(" "), expected, "{old} {new}");
        }
    };
    let template = |kind: &str, size: &str| json!({"apiVersion": "a.example/v1", "kind": kind, "spec": {"size": size}});
    let one = |kind: &str, size: &str| json!({"template": template(kind, size)});
    let item = |name: &str, kind: &str| json!({"name": name, "template": template(kind, "1")});
    let several = |items: Value| json!({"templates": items});
    check(one("A", "1"), one("A", "2"), "");
    check(one("A", "1"), one("B", "1"), "spec.template");
    check(one("A", "1"), json!({}), "spec.template");
    let both = several(json!([item("a", "A"), item("b", "B")]));
    check(both.clone(), both.clone(), "");
    check(both.clone(), several(json!([item("a", "A")])), "spec.templates");
    check(both.clone(), several(json!([item("a", "A"), item("c", "B")])), "spec.templates");
    check(both, several(json!([item("a", "A"), item("b", "C")])), "spec.templates");
    let adopts = |name: &str| json!({"implementationRef": {"apiVersion": "a/v1", "kind": "A", "name": name}});
    check(adopts("x"), adopts("y"), "spec.implementationRef");
}

/// What the server's OpenAPI says of a kind holds for templates of it.
#[test]
fn templates_fit_the_schema_of_their_kind() {
    let document = json!({"components": {"schemas": {
        "a.Server": {
            "type": "object", "required": ["spec"],
            "x-kubernetes-group-version-kind": [{"group": "a.example.com", "version": "v1", "kind": "Server"}],
            "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/a.Spec"}], "default": {}}, "status": {"type": "object"}},
        },
        "a.Spec": {
            "type": "object", "required": ["size", "mode"],
            "properties": {
                "size": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+([KMGTPE]i)?$"},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "count": {"type": "integer"}, "on": {"type": "boolean"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "ports": {"type": "array", "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}}}},
            },
        },
        "a.Scrubbed": {
            "type": "object",
            "x-kubernetes-group-version-kind": [{"group": "a.example.com", "version": "v1", "kind": "Scrubbed"}],
            "properties": {"spec": {"type": "object", "properties": {"scrub": {"type": "integer"}}}},
        },
    }}});
    let types = types();
    let documents = [document];
    let verdict = |body: Value| {
        let object = of("RelationalDatabaseClass", json!({"spec": body}));
        let snapshot = Snapshot { types: &types, openapi: &documents, ..Snapshot::default() };
        review(&Request { operation: Operation::Create, object: &object, old: &Value::Null }, &snapshot)
    };
    let made = |kind: &str, spec: Value| json!({"apiVersion": "a.example.com/v1", "kind": kind, "metadata": {"label": "foo"}, "spec": spec});
    let check = |spec: Value, expected: &[&str]| {
        let fields = match verdict(json!({"template": made("Server", spec.clone())})) {
            Verdict::Allow(_) => Vec::new(),
            Verdict::Refuse(errors) => errors.into_iter().map(|e| e.field.replace("spec.template.spec.", "")).collect(),
        };
        assert_eq!(fields, expected, "{spec}");
    };
    check(json!({"size": "1Gi"}), &[]);
    check(json!({"size": "${claim.spec.resources.requests.storage}", "count": "${1}", "on": "${true}"}), &[]);
    check(json!({"siez": "1Gi"}), &["siez", "size"]);
    check(json!({"size": "much"}), &["size"]);
    check(json!({"size": 5, "count": "x", "on": 1}), &["count", "on"]);
    check(json!({"size": 5, "mode": "c"}), &["mode"]);
    check(json!({"size": 5, "mode": "x-${claim.metadata.name}"}), &[]);
    check(json!({"size": 5, "labels": {"a": "b"}, "free": {"a": {"b": 1}}}), &[]);
    check(
        json!({"size": 5, "labels": {"a": 1}, "ports": [{"port": 1}, {"prot": 1}]}),
        &["labels.a", "ports[1].prot", "ports[1].port"],
    );
    check(json!({"size": 5, "ports": {"port": 1}}), &["ports"]);
    // what expressions yield has a type as well
    check(json!({"size": 5, "count": "${claim.spec.engine}", "on": "${size(claim.spec.engine)}"}), &["count", "on"]);
    check(json!({"size": 5, "count": "${size(claim.spec.engine)}", "on": "${claim.spec.highlyAvailable}"}), &[]);
    check(json!({"size": 5, "mode": "${1}", "count": "${1}-${2}"}), &["count", "mode"]);
    check(json!({"size": 5, "labels": "${claim.metadata.labels}", "ports": "${claim.metadata.labels}"}), &["ports"]);
    check(json!({"size": 5, "labels": {"a": "${size(claim.metadata.name)}"}, "free": {"x": "${1}"}}), &["labels.a"]);
    check(json!({"size": 5, "mode": "${claim.spec.version}", "count": "${resource.spec.maxClaims}"}), &[]);
    // what an implementation is, is known of its kind
    let said = |body: Value, expected: &str| {
        let mut body = body;
        body["template"] = made("Server", json!({"size": 1}));
        let said = match verdict(body.clone()) {
            Verdict::Allow(_) => String::new(),
            Verdict::Refuse(errors) => errors.iter().map(ToString::to_string).collect(),
        };
        assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{body}: {said}");
    };
    said(json!({"readyWhen": "implementation.spec.count > 0 && implementation.spec.ports.all(p, p.port > 0)"}), "");
    said(json!({"readyWhen": "implementation.status.anything"}), "");
    said(json!({"readyWhen": "implementation.spec.cuont > 0"}), "undefined field 'cuont'");
    said(json!({"readyWhen": "implementation.spec.mode > 0"}), "no matching overload");
    said(json!({"readyWhen": "implementation.spec.count"}), "yields int");
    said(json!({"readyWhen": "implementation.spec.ports.exists(p, p.prot == 1)"}), "undefined field 'prot'");
    said(
        json!({"connection": {"port": "implementation.spec.ports[0].port", "host": "implementation.metadata.name"}}),
        "",
    );
    said(json!({"connection": {"mode": "has(implementation.spec.mode) ? implementation.spec.mode : null"}}), "");
    said(json!({"connection": {"port": "implementation.spec.port"}}), "undefined field 'port'");
    // another kind's schema is not known, and binds nobody
    assert_eq!(verdict(json!({"template": made("Other", json!({"a": 1}))})), Verdict::Allow(Vec::new()));

    let warns = |body: Value, expected: &[&str]| {
        let Verdict::Allow(warnings) = verdict(body.clone()) else { panic!("{body} is refused") };
        assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
        for (warning, part) in warnings.iter().zip(expected) {
            assert!(warning.contains(part), "{warning} does not say {part}");
        }
    };
    let server = || made("Server", json!({"size": 1}));
    warns(json!({"reclaimPolicy": "Recycle", "template": server()}), &["a Server cannot be scrubbed"]);
    warns(json!({"reclaimPolicy": "Recycle", "template": made("Scrubbed", json!({}))}), &[]);
    warns(json!({"reclaimPolicy": "Recycle", "template": made("Other", json!({}))}), &[]);
    let mut named = server();
    (named["metadata"]["name"], named["status"]) = (json!("mine"), json!({"a": 1}));
    warns(
        json!({"template": named}),
        &["spec.template.metadata.name has no effect", "spec.template.status has no effect"],
    );
}
