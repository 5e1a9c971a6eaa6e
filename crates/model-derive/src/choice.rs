//! `#[derive(Choice)]`.
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, LitStr, Variant};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "Choice is for enums"));
    };
    let name = &input.ident;
    let variants: Vec<_> = data.variants.iter().map(|v| &v.ident).collect();
    let names = data.variants.iter().map(written_name).collect::<syn::Result<Vec<_>>>()?;
    Ok(quote! {
        impl ::weir_model::schema::Choice for #name {
            const NAMES: &'static [&'static str] = &[#(#names),*];
            const ALL: &'static [Self] = &[#(Self::#variants),*];
            fn as_str(&self) -> &'static str {
                match self { #(Self::#variants => #names),* }
            }
        }
        impl ::weir_model::schema::FieldType for #name {
            const KIND: ::weir_model::schema::Kind =
                ::weir_model::schema::Kind::Choice(<Self as ::weir_model::schema::Choice>::NAMES);
            fn read(
                node: &::weir_model::node::Node<'_>,
                field: &::weir_model::schema::FieldSchema,
                reader: &mut ::weir_model::schema::Reader<'_>,
            ) -> Option<Self> {
                ::weir_model::schema::read_choice(node, field, reader)
            }
            fn to_json(&self) -> ::weir_model::schema::Json {
                ::weir_model::schema::Choice::as_str(self).into()
            }
        }
    })
}

fn written_name(variant: &Variant) -> syn::Result<String> {
    match variant.attrs.iter().find(|a| a.path().is_ident("choice")) {
        Some(attribute) => Ok(attribute.parse_args::<LitStr>()?.value()),
        None => Ok(snake_case(&variant.ident.to_string())),
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (index, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}
