//! What a data plane does with the configurations that its control plane sends.
use crate::registry::Registry;
use std::sync::Arc;
use weir_cluster::{Apply, Refusal, Update};
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
        let pushed = self.registry.push(update, hash).await;
        pushed.map(drop).map_err(|errors| errors.iter().map(refusal).collect())
    }
}

fn refusal(error: &CompileError) -> Refusal {
    let (field, message) = error.field();
    let field = (!field.is_empty()).then(|| field.to_owned());
    Refusal { entity: error.entity.clone(), field, message: message.to_owned() }
}
