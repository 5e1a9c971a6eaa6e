//! `#[derive(Record)]`.
use crate::attributes::{FieldAttributes, doc};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Field, Fields, Ident, LitStr, Path, Token, Type, parenthesized};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let fields = named_fields(input)?.into_iter().map(DeclaredField::of).collect::<syn::Result<Vec<_>>>()?;
    let name = &input.ident;
    let record_doc = doc(&input.attrs);
    let schemas = field_schemas(&fields);
    let idents: Vec<_> = fields.iter().map(|field| field.ident).collect();
    let reads = reads(&fields);
    let inserts = fields.iter().map(DeclaredField::insert);
    let values = fields.iter().filter(|field| !field.flatten).map(DeclaredField::value);
    let flattened_values = fields.iter().filter(|field| field.flatten).map(|field| field.ident);
    let flattened = fields.iter().filter(|field| field.flatten).map(|field| field.ident);
    let extensions = fields.iter().any(|field| field.extension).then(|| {
        quote! {
            ::weir_model::schema::hide_extensions(
                <Self as ::weir_model::schema::Record>::SCHEMA,
                &mut members,
            );
        }
    });
    let RecordAttributes { checks, old_names, hints } = RecordAttributes::parse(input)?;
    Ok(quote! {
        impl ::weir_model::schema::Record for #name {
            const SCHEMA: &'static ::weir_model::schema::RecordSchema = &::weir_model::schema::RecordSchema {
                doc: #record_doc,
                fields: #schemas,
                old_names: #old_names,
                hints: &[#(#hints),*],
            };
            fn read_fields(
                fields: &::weir_model::schema::Fields<'_, '_>,
                reader: &mut ::weir_model::schema::Reader<'_>,
            ) -> Option<Self> {
                // Every field is read before the first failure returns, so that all are reported.
                #(let #idents = #reads;)*
                Some(Self { #(#idents: #idents?),* })
            }
            fn check(&self) -> Vec<::weir_model::schema::FieldError> {
                #[allow(unused_mut)]
                let mut found = Vec::new();
                #(found.extend(::weir_model::schema::Record::check(&self.#flattened));)*
                #(found.extend(#checks(self));)*
                found
            }
            fn field_value(&self, name: &str) -> ::weir_model::schema::FieldValue<'_> {
                match name {
                    #(#values)*
                    _ => {}
                }
                #(
                    let value = ::weir_model::schema::Record::field_value(&self.#flattened_values, name);
                    if !matches!(value, ::weir_model::schema::FieldValue::Other) {
                        return value;
                    }
                )*
                ::weir_model::schema::FieldValue::Other
            }
            fn to_value(&self) -> ::weir_model::schema::Json {
                let mut members = ::weir_model::schema::JsonMap::new();
                #(#inserts)*
                #extensions
                ::weir_model::schema::add_old_names(<Self as ::weir_model::schema::Record>::SCHEMA, &mut members);
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
                ::weir_model::schema::read_record(node, &::weir_model::schema::RecordContext::NONE, reader)
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

/// A field, with what its attributes say.
struct DeclaredField<'i> {
    ident: &'i Ident,
    kind: &'i Type,
    /// Its name in configurations.
    name: String,
    doc: String,
    members: Vec<TokenStream>,
    flatten: bool,
    extension: bool,
}

impl<'i> DeclaredField<'i> {
    fn of(field: &'i Field) -> syn::Result<Self> {
        let FieldAttributes { name, members, flatten, extension } = FieldAttributes::parse(&field.attrs)?;
        let ident =
            field.ident.as_ref().ok_or_else(|| syn::Error::new_spanned(field, "a field has a name"))?;
        let name = name.unwrap_or_else(|| ident.unraw().to_string());
        Ok(Self { ident, kind: &field.ty, name, doc: doc(&field.attrs), members, flatten, extension })
    }

    fn schema(&self) -> TokenStream {
        let Self { kind, name, doc, members, .. } = self;
        quote! {
            ::weir_model::schema::FieldSchema {
                #(#members,)*
                ..::weir_model::schema::FieldSchema::new::<#kind>(#name, #doc)
            }
        }
    }

    /// The fields of the record that it flattens.
    fn fields(&self) -> TokenStream {
        let kind = self.kind;
        quote!(<#kind as ::weir_model::schema::Record>::SCHEMA.fields)
    }

    /// Its value, where its name is matched.
    fn value(&self) -> TokenStream {
        let Self { ident, name, .. } = self;
        quote!(#name => return ::weir_model::schema::FieldType::value(&self.#ident),)
    }

    /// Puts it into the `members` of an object.
    fn insert(&self) -> TokenStream {
        let Self { ident, name, .. } = self;
        if self.flatten {
            return quote! {
                if let ::weir_model::schema::Json::Object(inner) = ::weir_model::schema::Record::to_value(&self.#ident) {
                    members.extend(inner);
                }
            };
        }
        quote!(members.insert(#name.to_owned(), ::weir_model::schema::FieldType::to_json(&self.#ident));)
    }
}

/// All fields as one slice.
fn field_schemas(fields: &[DeclaredField<'_>]) -> TokenStream {
    if !fields.iter().any(|field| field.flatten) {
        let schemas = fields.iter().map(DeclaredField::schema);
        return quote!(&[#(#schemas),*]);
    }
    let parts = fields.iter().map(|field| match (field.flatten, field.fields(), field.schema()) {
        (true, fields, _) => fields,
        (false, _, schema) => quote!(&[#schema]),
    });
    let length = places(fields).1;
    quote!(&::weir_model::schema::joined::<{ #length }>(&[#(#parts),*]))
}

/// How each field is read from its place among `fields`.
fn reads(fields: &[DeclaredField<'_>]) -> Vec<TokenStream> {
    let of = |(field, place): (&DeclaredField<'_>, _)| match field.flatten {
        true => quote!(fields.flattened(#place, reader)),
        false => quote!(fields.read(#place, reader)),
    };
    fields.iter().zip(places(fields).0).map(of).collect()
}

/// The place of each field in the slice, and the slice's length.
fn places(fields: &[DeclaredField<'_>]) -> (Vec<TokenStream>, TokenStream) {
    let (mut own, mut flattened) = (0_usize, TokenStream::new());
    let mut places = Vec::new();
    for field in fields {
        places.push(quote!(#own #flattened));
        match (field.flatten, field.fields()) {
            (true, fields) => flattened.extend(quote!(+ #fields.len())),
            (false, _) => own += 1,
        }
    }
    (places, quote!(#own #flattened))
}

/// What `#[record(…)]` says: `check = function`, `old_name("redis_host", "redis.host")` and
/// `hint("limit", "window_size", "what to write where these are written")`, each any number of times, or
/// `old_names = CONSTANT` for names that several records have.
struct RecordAttributes {
    checks: Vec<Path>,
    /// The slice of them.
    old_names: TokenStream,
    hints: Vec<TokenStream>,
}

impl RecordAttributes {
    fn parse(input: &DeriveInput) -> syn::Result<Self> {
        let (mut checks, mut shared, mut own, mut hints) = (Vec::new(), None::<Path>, Vec::new(), Vec::new());
        for attribute in input.attrs.iter().filter(|a| a.path().is_ident("record")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("check") {
                    checks.push(meta.value()?.parse()?);
                } else if meta.path.is_ident("old_names") {
                    shared = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("old_name") {
                    let names = literals(&meta)?;
                    own.push(quote!((#(#names),*)));
                } else if meta.path.is_ident("hint") {
                    let mut names = literals(&meta)?;
                    let hint = names.pop();
                    hints.push(quote!((&[#(#names),*], #hint)));
                } else {
                    let message =
                        "no such record attribute; there are `check`, `old_name`, `old_names` and `hint`";
                    return Err(meta.error(message));
                }
                Ok(())
            })?;
        }
        let old_names = match shared {
            None => quote!(&[#(#own),*]),
            Some(names) if own.is_empty() => quote!(#names),
            Some(names) => return Err(syn::Error::new_spanned(names, "the names stand here, or one by one")),
        };
        Ok(Self { checks, old_names, hints })
    }
}

/// The texts in parentheses.
fn literals(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<LitStr>> {
    let texts;
    parenthesized!(texts in meta.input);
    Ok(Punctuated::<LitStr, Token![,]>::parse_terminated(&texts)?.into_iter().collect())
}
