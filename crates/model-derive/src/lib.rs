//! Derives `weir_model::schema::Record` and `weir_model::schema::Choice`: a field is declared once, as a
//! Rust field, and its schema, validation, default and JSON all come from that declaration.
//!
//! The attributes of a field are those of `attributes::FieldAttributes`.
mod attributes;
mod choice;
mod record;

use proc_macro::TokenStream;
use proc_macro2::{Group, Ident, TokenTree};
use syn::{DeriveInput, parse_macro_input};

/// Implements `Record` and `FieldType` for a struct with named fields.
#[proc_macro_derive(Record, attributes(field, record))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    record::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The same for a plugin's configuration: what it needs of `weir_model` is reached through `weir_plugin`, the only crate
/// of the gateway that a plugin depends on.
#[proc_macro_derive(PluginRecord, attributes(field, record))]
pub fn derive_plugin_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    through_plugin(record::expand(&input).unwrap_or_else(syn::Error::into_compile_error)).into()
}

/// Implements `Choice` and `FieldType` for an enum without data. A variant's name is its Rust name in
/// snake case unless `#[choice("…")]` gives another.
#[proc_macro_derive(Choice, attributes(choice))]
pub fn derive_choice(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    choice::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Names the crate `weir_plugin` wherever the tokens name `weir_model`.
fn through_plugin(tokens: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let renamed = tokens.into_iter().map(|token| match token {
        TokenTree::Ident(ident) if ident == "weir_model" => Ident::new("weir_plugin", ident.span()).into(),
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), through_plugin(group.stream()));
            inner.set_span(group.span());
            inner.into()
        }
        other => other,
    });
    renamed.collect()
}
