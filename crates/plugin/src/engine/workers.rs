//! The plugins that do something on each worker beside their hooks.

use crate::{Definition, Hooks, Retained, WorkerContext};
use std::sync::Arc;

/// The instances of the plugins of one configuration that want to know of them on each worker.
#[derive(Default)]
pub struct PluginInstances(Vec<(Definition, Vec<Arc<dyn Hooks>>)>);

impl PluginInstances {
    /// Of these plugins, those that want to; with the instances that `of` finds by the plugin's name.
    pub fn new(plugins: &[Definition], of: impl Fn(&str) -> Vec<Arc<dyn Hooks>>) -> Self {
        let configured = plugins.iter().filter(|plugin| plugin.configure.is_some());
        Self(configured.map(|plugin| (*plugin, of(plugin.name))).collect())
    }

    /// Whether the instances are the same.
    pub fn are_those_of(&self, other: &Self) -> bool {
        let same = |a: &[Arc<dyn Hooks>], b: &[Arc<dyn Hooks>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|((_, a), (_, b))| same(a, b))
    }
}

/// The plugins of one worker.
pub struct WorkerPlugins {
    worker: (usize, usize),
    retained: Arc<Retained>,
    /// What they were last configured with.
    configured: Option<Arc<PluginInstances>>,
}

impl WorkerPlugins {
    /// Has each plugin do what it does before the worker serves: the one of this number, of so many.
    pub fn init(plugins: &[Definition], worker: (usize, usize), retained: Arc<Retained>) -> Self {
        let own = Self { worker, retained, configured: None };
        for plugin in plugins {
            if let Some(init) = plugin.init {
                let context = own.context(plugin);
                context.attempt("init", || init(&context));
            }
        }
        own
    }

    /// Has each plugin that wants to see its instances, unless they are those of last time.
    pub fn configure(&mut self, instances: &Arc<PluginInstances>) {
        if self.configured.as_ref().is_some_and(|last| Arc::ptr_eq(last, instances)) {
            return;
        }
        for (plugin, instances) in &instances.0 {
            if let Some(configure) = plugin.configure {
                let context = self.context(plugin);
                let instances: Vec<&dyn Hooks> = instances.iter().map(|hooks| &**hooks).collect();
                context.attempt("configure", || configure(&context, &instances));
            }
        }
        self.configured = Some(instances.clone());
    }

    fn context(&self, plugin: &Definition) -> WorkerContext {
        WorkerContext::new(plugin.name, self.worker, self.retained.clone())
    }
}
