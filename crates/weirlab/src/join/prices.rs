//! What machines cost, as the user says.
use crate::catalogue::{CatalogueError, parse_toml, read_text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A file of prices.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// What amounts are in, such as `USD`; shown as it is written.
    pub currency: String,
    /// By the names of machines.
    pub machines: BTreeMap<String, Price>,
}

/// The price of a machine.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// For an hour.
    pub per_hour: f64,
    /// What has a machine of its own.
    #[serde(default)]
    pub each: Each,
}

/// What a price is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Each {
    /// The machine that all gateways run on.
    #[default]
    Host,
    /// A machine for each gateway.
    Instance,
}

impl Prices {
    /// Reads them for these machines.
    ///
    /// # Errors
    /// When the file cannot be read, or lacks a machine.
    pub fn read(file: &Path, machines: &[&str]) -> Result<Prices, CatalogueError> {
        let text = read_text(file)?;
        let prices: Prices = parse_toml(file, &text)?;
        let wrong = |message: String| CatalogueError::Invalid {
            file: file.to_owned(),
            line: text.lines().count().max(1),
            column: 1,
            message,
        };
        for name in machines {
            match prices.machines.get(*name) {
                None => {
                    let message = format!("there is no price of {name}: add [machines.{name}] with per_hour");
                    return Err(wrong(message));
                }
                Some(price) if !(price.per_hour.is_finite() && price.per_hour >= 0.0) => {
                    return Err(wrong(format!("per_hour of {name} is {}: write 0 or more", price.per_hour)));
                }
                Some(_) => {}
            }
        }
        Ok(prices)
    }
}

impl Price {
    /// For a million requests at a rate of requests per second.
    #[must_use]
    pub fn per_million(&self, rate: f64, instances: usize) -> f64 {
        let machines = if self.each == Each::Instance { instances as f64 } else { 1.0 };
        self.per_hour * machines / 3600.0 / rate * 1e6
    }
}
