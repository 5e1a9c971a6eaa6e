//! What a plugin declares of a metric, and which declarations are refused.

/// How the names begin that the node's own metrics have.
const RESERVED_PREFIXES: [&str; 14] = [
    "apisix_",
    "kong_bandwidth",
    "kong_datastore",
    "kong_http_",
    "kong_kong_",
    "kong_memory_",
    "kong_nginx_",
    "kong_node_",
    "kong_request_",
    "kong_session",
    "kong_stream",
    "kong_upstream_",
    "process_",
    "weir_",
];

/// What a metric says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A valid declaration.
pub(super) struct Declaration {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) help: String,
    pub(super) labels: Vec<String>,
    pub(super) bounds: Vec<f64>,
}

impl Declaration {
    pub(super) fn new(
        kind: Kind,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<Self, String> {
        check_prefix(name)?;
        Self::of_node(kind, name, help, labels, bounds)
    }

    /// The same, whose name may begin as those of the node's own metrics.
    pub(super) fn of_node(
        kind: Kind,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<Self, String> {
        check_name(name)?;
        for (index, label) in labels.iter().enumerate() {
            check_label(name, label)?;
            if labels[..index].contains(label) {
                return Err(format!("the metric {name} has the label `{label}` twice; remove one"));
            }
        }
        let grow = bounds.windows(2).all(|pair| pair[0] < pair[1]);
        if kind == Kind::Histogram && !(grow && !bounds.is_empty() && bounds.iter().all(|it| it.is_finite()))
        {
            return Err(format!(
                "the histogram {name} needs bounds that are finite and grow, as in [0.1, 1.0]"
            ));
        }
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        Ok(Self { kind, name: name.to_owned(), help: help.to_owned(), labels, bounds: bounds.to_vec() })
    }

    /// Whether another one declares the same metric.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.kind, &self.name, &self.labels, &self.bounds)
            == (other.kind, &other.name, &other.labels, &other.bounds)
    }

    /// Whether a sample of one would have the name of a sample of the other.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.samples_are_called(&other.name) || other.samples_are_called(&self.name)
    }

    fn samples_are_called(&self, name: &str) -> bool {
        let suffix = name.strip_prefix(self.name.as_str());
        self.kind == Kind::Histogram && matches!(suffix, Some("_bucket" | "_sum" | "_count"))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if !is_identifier(name) {
        return Err(format!(
            "`{name}` is not a name of a metric: use letters, digits and `_`, beginning with a letter"
        ));
    }
    Ok(())
}

fn check_prefix(name: &str) -> Result<(), String> {
    match RESERVED_PREFIXES.iter().find(|prefix| name.starts_with(**prefix)) {
        Some(prefix) => Err(format!(
            "`{name}`: metrics that begin with `{prefix}` are the gateway's own; choose another name"
        )),
        None => Ok(()),
    }
}

fn check_label(metric: &str, label: &str) -> Result<(), String> {
    if !is_identifier(label) {
        return Err(format!("`{label}` is not a name of a label of {metric}: use letters, digits and `_`"));
    }
    if matches!(label, "le" | "quantile") || label.starts_with("__") {
        return Err(format!("the label `{label}` of {metric} is reserved by Prometheus; choose another"));
    }
    Ok(())
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
