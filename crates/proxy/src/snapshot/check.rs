//! Whether one entity can be compiled, before it is stored.

use super::compile::{Compilation, CompileError, Compiler};
use super::instances::Instances;
use super::last::Identities;
use super::streams::is_stream;
use super::users::Users;
use std::sync::Arc;
use weir_model::entity::{CaCertificate, Entity, EntityKind};
use weir_model::{Document, Entities};
use weir_net::tls::{self, Certificates, Subject, TlsError, Verify};
use weir_plugin::engine::has_references;
use weir_router::Patterns;

impl Compiler {
    /// Whether an entity can be compiled among these others. What passes here alone passes in every document. One that refers
    /// to secrets passes, because a vault may have others by then.
    pub fn check(&self, entity: &Entity, others: &Entities) -> Result<(), CompileError> {
        let document = document(entity, others);
        if has_references(&document, self.plugins) {
            return Ok(());
        }
        let compilation = Compilation::new(self, &document, Arc::new(Users::new(&document)));
        match entity {
            Entity::Routes(route) => {
                drop(compilation.router(&[route], &mut Patterns::default()));
                if is_stream(route) {
                    drop(compilation.stream_router(&[route], &mut Patterns::default()));
                }
            }
            Entity::Plugins(_) => drop(compilation.plugins(&mut Instances::default())),
            Entity::Services(_) | Entity::Certificates(_) => self.check_tls(&compilation, &document),
            Entity::CaCertificates(authority) => {
                if let Err(TlsError { problem, .. }) = trust(authority) {
                    let subject = Subject::CaCertificate(Some(authority.id));
                    compilation.fail_tls(TlsError { subject, problem });
                }
            }
            _ => {}
        }
        match compilation.errors.into_inner().into_iter().next() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn check_tls(&self, compilation: &Compilation<'_>, document: &Document) {
        match Certificates::build(document, self.default_certificate.clone()) {
            Ok(certificates) => {
                let of = (document.certificates.clone(), document.snis.clone());
                let identities = Identities { certificates: Arc::new(certificates), of };
                drop(compilation.services(&Arc::new(identities), None));
            }
            Err(errors) => errors.into_iter().for_each(|error| compilation.fail_tls(error)),
        }
    }
}

/// The entity, and the certificates that it names.
fn document(entity: &Entity, others: &Entities) -> Document {
    let mut document = Document::default();
    for named in entity.references() {
        if matches!(named.kind, EntityKind::Certificates | EntityKind::CaCertificates) {
            others.get(named.kind, named.id).into_iter().for_each(|entity| document.push(entity.clone()));
        }
    }
    document.push(entity.clone());
    document
}

fn trust(authority: &CaCertificate) -> Result<(), TlsError> {
    let roots = tls::ca_certificates(&authority.cert)?;
    tls::client_config(Some(Verify { roots, depth: None }), None).map(drop)
}
