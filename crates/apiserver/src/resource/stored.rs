//! An object between the form that is stored and the one that a version of its resource shows.

use std::sync::Arc;

use machinery::schema;
use machinery::status::Status;
use serde_json::Value;

use super::{Nature, Resource};

impl Resource {
    /// Entries that can be read in this version: those whose definition names a webhook are converted by it. To be called
    /// before [`Self::read`], and not while a lock is held. `keep` is for what many watchers are shown.
    pub async fn show(&self, entries: Vec<Arc<store::Entry>>, keep: bool) -> Result<Vec<Arc<store::Entry>>, Status> {
        match &self.nature {
            Nature::Custom(custom) if custom.webhook().is_some() => custom.show(entries, keep).await,
            _ => Ok(entries),
        }
    }

    /// Whether some entries cannot be read without a webhook.
    pub fn needs_webhook(&self) -> bool {
        matches!(&self.nature, Nature::Custom(custom) if custom.webhook().is_some())
    }

    /// Whether its objects are stored in this version.
    pub fn is_storage(&self) -> bool {
        match &self.nature {
            Nature::Custom(custom) => custom.is_storage(),
            Nature::BuiltIn(_) => self.twin().is_none(),
        }
    }

    /// One entry that can be read in this version.
    pub async fn show_one(&self, entry: Arc<store::Entry>) -> Result<Arc<store::Entry>, Status> {
        match &self.nature {
            Nature::Custom(custom) if custom.webhook().is_some() => {
                let mut shown = custom.show(vec![entry], false).await?;
                shown.pop().ok_or_else(|| Status::internal("a conversion gave nothing"))
            }
            _ => Ok(entry),
        }
    }

    /// A stored object as this version shows it; see [`Self::show`].
    pub fn read(&self, entry: &store::Entry) -> Result<Value, Status> {
        let object = crate::plan::parse_stored(entry)?;
        Ok(match &self.nature {
            Nature::Custom(custom) if !custom.is_current(entry) => {
                if custom.webhook().is_some() && object["apiVersion"] != self.api_version() {
                    return Err(Status::internal(format!("{} is read before it is converted", entry.key)));
                }
                custom.read(object)
            }
            _ => match self.twin() {
                Some(twin) => twin.from_stored(object),
                None => object,
            },
        })
    }

    /// What is stored, as this version shows it. `entry` is where it is stored, if it is already.
    pub async fn open(&self, object: Arc<Value>, entry: Option<&store::Entry>) -> Result<Arc<Value>, Status> {
        match (&self.nature, self.twin()) {
            (Nature::Custom(custom), _) if !entry.is_some_and(|entry| custom.is_current(entry)) => {
                custom.shown(Arc::unwrap_or_clone(object)).await.map(Arc::new)
            }
            (_, Some(twin)) => Ok(Arc::new(twin.from_stored(Arc::unwrap_or_clone(object)))),
            _ => Ok(object),
        }
    }

    /// Whether a stored object's bytes are what this version of the resource shows.
    pub fn is_current(&self, entry: &store::Entry) -> bool {
        match &self.nature {
            Nature::Custom(custom) => custom.is_current(entry),
            Nature::BuiltIn(_) => self.twin().is_none(),
        }
    }

    /// Whether writing an object that reads like the stored one would change nothing: what a version does not know of is
    /// lost when it is written in that version.
    pub async fn is_stored(&self, entry: &store::Entry, object: &Value) -> Result<bool, Status> {
        let mut written = match &self.nature {
            Nature::Custom(custom) if !custom.is_current(entry) => custom.store(object.clone()).await?,
            Nature::BuiltIn(_) if !self.stores_as_shown() => self.internal(object).into_owned(),
            _ => return Ok(true),
        };
        let mut stored = serde_json::from_slice::<Value>(&entry.value).unwrap_or_default();
        for one in [&mut stored, &mut written] {
            crate::write::meta_mut(one).remove("resourceVersion");
        }
        Ok(stored == written)
    }

    /// Whether an object is stored as this version shows it.
    pub fn stores_as_shown(&self) -> bool {
        match &self.nature {
            Nature::Custom(custom) => custom.is_storage(),
            Nature::BuiltIn(_) => self.twin().is_none(),
        }
    }

    /// The object as it would be read after it was written: what the stored version does not know of is lost.
    pub async fn as_read_back(&self, object: Value) -> Result<Value, Status> {
        match &self.nature {
            Nature::Custom(custom) if !custom.is_storage() => custom.shown(custom.store(object).await?).await,
            _ => Ok(object),
        }
    }

    /// The stored form, in the version that is stored.
    pub async fn to_store(&self, object: &Value) -> Result<store::Value, Status> {
        match &self.nature {
            Nature::Custom(custom) if !custom.is_storage() => Ok(self.encode(&custom.store(object.clone()).await?)),
            _ => Ok(self.encode(object)),
        }
    }

    /// The same in the place of what is stored: the half that a write is not about stays as it is there, also where this
    /// version cannot say it.
    pub async fn to_replace(
        &self,
        object: &Value,
        subresource: &str,
        entry: Option<&store::Entry>,
    ) -> Result<store::Value, Status> {
        let (Some(_), Some(entry)) = (self.twin(), entry) else { return self.to_store(object).await };
        let mut internal = self.internal(object).into_owned();
        let mut stored = crate::plan::parse_stored(entry)?;
        let half = if subresource == "status" { "spec" } else { "status" };
        if let Some(kept) = stored.get_mut(half) {
            internal[half] = kept.take();
        }
        Ok(self.encode_internal(&internal))
    }

    /// The stored form of an object in the version that is stored, with a hole where the revision goes.
    pub fn encode(&self, object: &Value) -> store::Value {
        self.encode_internal(&self.internal(object))
    }

    fn encode_internal(&self, object: &Value) -> store::Value {
        let mut bytes = Vec::with_capacity(1024);
        let schema = (!self.is_custom()).then(|| self.internal_schema());
        let revision_at = schema::encode_object(object, schema, &mut bytes);
        // The version that the object had before is not the one it will have.
        if let Some(at) = revision_at {
            let length = bytes[at..].iter().position(|byte| *byte == b'"').unwrap_or(0);
            bytes.drain(at..at + length);
        }
        store::Value { bytes, revision_at }
    }
}
