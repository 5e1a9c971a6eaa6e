//! `#[derive(Record)]`.
use crate::attributes::{FieldAttributes, doc};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Field, Fields, LitStr, Path, Token, parenthesized};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let fields = named_fields(input)?;
    let name = &input.ident;
    let record_doc = doc(&input.attrs);
    let schemas = fields.iter().map(|f| field_schema(f)).collect::<syn::Result<Vec<_>>>()?;
    let idents: Vec<_> = fields.iter().filter_map(|f| f.ident.as_ref()).collect();
    let names = fields.iter().map(|f| name_of(f)).collect::<syn::Result<Vec<_>>>()?;
    let positions = 0..idents.len();
    let RecordAttributes { checks, old_names } = RecordAttributes::parse(input)?;
    Ok(quote! {
        impl ::weir_model::schema::Record for #name {
            const SCHEMA: &'static ::weir_model::schema::RecordSchema = &::weir_model::schema::RecordSchema {
                doc: #record_doc,
                fields: &[#(#schemas),*],
                old_names: &[#(#old_names),*],
            };
            fn read_fields(
                fields: &::weir_model::schema::Fields<'_, '_>,
                reader: &mut ::weir_model::schema::Reader<'_>,
            ) -> Option<Self> {
                // Every field is read before the first failure returns, so that all are reported.
                #(let #idents = fields.read(#positions, reader);)*
                Some(Self { #(#idents: #idents?),* })
            }
            fn violations(&self) -> Vec<::weir_model::schema::Violation> {
                #[allow(unused_mut)]
                let mut found = Vec::new();
                #(found.extend(#checks(self));)*
                found
            }
            fn to_value(&self) -> ::weir_model::schema::Json {
                let mut members = ::weir_model::schema::JsonMap::new();
                #(members.insert(
                    #names.to_owned(),
                    ::weir_model::schema::FieldType::to_json(&self.#idents),
                );)*
                ::weir_model::schema::tell_old_names(<Self as ::weir_model::schema::Record>::SCHEMA, &mut members);
                ::weir_model::schema::Json::Object(members)
            }
        }
        impl ::weir_model::schema::FieldType for #name {
            const KIND: ::weir_model::schema::Kind = ::weir_model::schema::Kind::Record(
                <Self as ::weir_model::schema::Record>::SCHEMA,
            );
            fn read(
                node: &::weir_model::node::Node<'_>,
                _: &::weir_model::schema::FieldSchema,
                reader: &mut ::weir_model::schema::Reader<'_>,
            ) -> Option<Self> {
                ::weir_model::schema::read_record(node, &::weir_model::schema::Surroundings::NONE, reader)
            }
            fn to_json(&self) -> ::weir_model::schema::Json {
                ::weir_model::schema::Record::to_value(self)
            }
        }
    })
}

fn named_fields(input: &DeriveInput) -> syn::Result<Vec<&Field>> {
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => Ok(fields.named.iter().collect()),
            Fields::Unit => Ok(Vec::new()),
            Fields::Unnamed(_) => Err(syn::Error::new_spanned(input, "a Record has named fields")),
        },
        _ => Err(syn::Error::new_spanned(input, "Record is for structs")),
    }
}

/// The field's name in configurations.
fn name_of(field: &Field) -> syn::Result<String> {
    let ident = || field.ident.as_ref().map(|i| i.unraw().to_string()).unwrap_or_default();
    Ok(FieldAttributes::parse(&field.attrs)?.name.unwrap_or_else(ident))
}

fn field_schema(field: &Field) -> syn::Result<TokenStream> {
    let name = name_of(field)?;
    let (kind, text) = (&field.ty, doc(&field.attrs));
    let members = FieldAttributes::parse(&field.attrs)?.members;
    Ok(quote! {
        ::weir_model::schema::FieldSchema {
            #(#members,)*
            ..::weir_model::schema::FieldSchema::new::<#kind>(#name, #text)
        }
    })
}

/// What `#[record(…)]` says: `check = function`, `old_name("redis_host", "redis.host")`, each any number of times.
#[derive(Default)]
struct RecordAttributes {
    checks: Vec<Path>,
    old_names: Vec<TokenStream>,
}

impl RecordAttributes {
    fn parse(input: &DeriveInput) -> syn::Result<Self> {
        let mut found = Self::default();
        for attribute in input.attrs.iter().filter(|a| a.path().is_ident("record")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("check") {
                    found.checks.push(meta.value()?.parse()?);
                } else if meta.path.is_ident("old_name") {
                    let names;
                    parenthesized!(names in meta.input);
                    let names = Punctuated::<LitStr, Token![,]>::parse_terminated(&names)?;
                    found.old_names.push(quote!((#names)));
                } else {
                    return Err(meta.error("no such record attribute; there are `check` and `old_name`"));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}
