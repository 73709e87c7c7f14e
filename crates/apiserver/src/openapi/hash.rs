//! The index of documents, and their hashes. A document is hashed by what it is made from, so that the index is there at
//! once.

use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use ring::digest::{Context, SHA512};
use serde_json::{Map, Value, json};

use super::Site;
use super::documents::Document;
use crate::resource::{Nature, Resource};

/// To be raised when documents are written differently: clients keep a document by its hash, for good.
const REVISION: u32 = 2;

/// The hash of all built-in types and resources.
static BUILT_IN: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Text(Context::new(&SHA512));
    // Writing into a hash does not fail.
    let _ = kinds::types().iter().try_for_each(|(id, node)| write!(hash, "{id:?}{node:?}"));
    let _ = kinds::resources().iter().try_for_each(|resource| write!(hash, "{resource:?}"));
    finish(hash.0)
});

/// A hash of text.
struct Text(Context);

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// `/openapi/v3`: where the documents are.
pub fn index(site: &Site<'_>) -> Value {
    let entry = |document: &Document| {
        let (name, hash) = (document.name(), of_document(document, site));
        let address = format!("/openapi/v3/{name}?hash={hash}");
        (name, json!({"serverRelativeURL": address}))
    };
    let paths: Map<String, Value> = Document::all(site.catalog).iter().map(entry).collect();
    json!({"paths": paths})
}

/// The hash of a document.
pub fn of_document(document: &Document, site: &Site<'_>) -> String {
    let mut hash = begin(&document.name());
    document.resources(site.catalog).for_each(|resource| add(&mut hash, resource, site));
    finish(hash)
}

/// The hash of a document of everything.
pub fn of_all(name: &str, site: &Site<'_>) -> String {
    let mut hash = begin(name);
    site.catalog.all().iter().for_each(|resource| add(&mut hash, resource, site));
    finish(hash)
}

fn begin(name: &str) -> Context {
    let mut hash = Context::new(&SHA512);
    hash.update(env!("CARGO_PKG_VERSION").as_bytes());
    hash.update(&REVISION.to_le_bytes());
    hash.update(BUILT_IN.as_bytes());
    hash.update(&[u8::from(cfg!(feature = "descriptions"))]);
    hash.update(name.as_bytes());
    hash
}

fn add(hash: &mut Context, resource: &Resource, site: &Site<'_>) {
    let mut text = |text: &str| {
        hash.update(text.as_bytes());
        hash.update(b"\0");
    };
    text(&resource.group);
    text(&resource.version);
    // What built-in resources are like is hashed as a whole.
    if let Nature::Custom(custom) = &resource.nature {
        for of in [&resource.plural, &resource.kind, &resource.list_kind] {
            text(of);
        }
        text(if resource.namespaced { "n" } else { "c" });
        resource.subresources.iter().for_each(|sub| text(&sub.name));
        custom.selectable().for_each(&mut text);
        text(&(site.custom)(resource).to_string());
    }
}

fn finish(hash: Context) -> String {
    hash.finish().as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}
