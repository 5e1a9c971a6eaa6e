//! What a data plane does with the configurations that its control plane sends.
use crate::registry::Registry;
use std::sync::Arc;
use weir_cluster::{Apply, Refusal, Update};
use weir_model::Document;
use weir_proxy::CompileError;

/// Applies configurations to the registry.
pub(super) struct Applied {
    registry: Arc<Registry>,
}

impl Applied {
    pub(super) fn new(registry: Arc<Registry>) -> Applied {
        Applied { registry }
    }
}

impl Apply for Applied {
    async fn apply(&self, update: Update, hash: String) -> Result<(), Vec<Refusal>> {
        let registry = self.registry.clone();
        // A task of its own ends even if its caller waits no more: what is half applied would be neither the old nor
        // the new.
        match tokio::spawn(async move { registry.push(update, hash).await }).await {
            Ok(pushed) => pushed.map(drop).map_err(|errors| errors.iter().map(refusal).collect()),
            Err(error) => {
                let entity = "configuration".to_owned();
                Err(vec![Refusal { entity, field: None, message: error.to_string() }])
            }
        }
    }

    fn active(&self) -> Option<Document> {
        Some(self.registry.configuration().document.clone())
    }
}

fn refusal(error: &CompileError) -> Refusal {
    let (_, message) = error.field();
    let field = error.location();
    let field = (!field.is_empty()).then(|| field.to_owned());
    Refusal { entity: error.entity.clone(), field, message: message.to_owned() }
}
