//! Derives `weir_model::schema::Record` and `weir_model::schema::Choice`: a field is declared once, as a
//! Rust field, and its schema, validation, default and JSON all come from that declaration.
//!
//! The attributes of a field are those of `attributes::FieldAttributes`.
mod attributes;
mod choice;
mod record;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Record` and `FieldType` for a struct with named fields.
#[proc_macro_derive(Record, attributes(field, record))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    record::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Implements `Choice` and `FieldType` for an enum without data. A variant's name is its Rust name in
/// snake case unless `#[choice("…")]` gives another.
#[proc_macro_derive(Choice, attributes(choice))]
pub fn derive_choice(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    choice::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
