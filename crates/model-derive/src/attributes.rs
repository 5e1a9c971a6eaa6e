//! What can be written in `#[field(…)]`.
use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Expr, ExprArray, ExprBlock, ExprLit, ExprUnary, Ident, Lit, LitStr, Path, Stmt, UnOp};

/// The schema members that the attributes of one field set, as `name: value` tokens.
#[derive(Default)]
pub(crate) struct FieldAttributes {
    /// The name in configurations, where it is none for Rust.
    pub(crate) name: Option<String>,
    /// It is a record whose fields stand among those around it.
    pub(crate) flatten: bool,
    /// Kong does not have it.
    pub(crate) extension: bool,
    pub(crate) members: Vec<TokenStream>,
}

impl FieldAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("field")) {
            attribute.parse_nested_meta(|meta| found.member(&meta))?;
            if found.flatten && (found.name.is_some() || !found.members.is_empty()) {
                return Err(syn::Error::new_spanned(
                    attribute,
                    "what is flattened is no field with rules of its own",
                ));
            }
        }
        Ok(found)
    }

    fn member(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let name = meta.path.require_ident()?.clone();
        if name == "name" {
            self.name = Some(meta.value()?.parse::<LitStr>()?.value());
            return Ok(());
        }
        if name == "flatten" {
            self.flatten = true;
            return Ok(());
        }
        let member = match name.to_string().as_str() {
            "set" | "secret" | "encrypted" | "referenceable" | "literal" | "auto" | "unique" => {
                quote!(#name: true)
            }
            // Its default stands for null.
            "nullable" => quote!(required: false),
            "extension" => {
                self.extension = true;
                quote!(extension: true)
            }
            "uuid" => quote!(check: Some(::weir_model::rule::uuid), rule: Some("uuid")),
            "default" => {
                let value = literal(&meta.value()?.parse()?)?;
                quote!(default: Some(#value))
            }
            "one_of" => {
                let values = literals(&meta.value()?.parse()?)?;
                quote!(one_of: &[#(#values),*])
            }
            "gt" => {
                let bound = number(&meta.value()?.parse()?)?;
                quote!(gt: Some(#bound))
            }
            "between" => {
                let bounds = pair(&meta.value()?.parse()?)?;
                quote!(between: Some(#bounds))
            }
            "len_min" | "len_max" | "starts_with" | "foreign" | "depends_on" => {
                let value: Expr = meta.value()?.parse()?;
                quote!(#name: Some(#value))
            }
            "matches" => {
                let rule: Ident = meta.value()?.parse()?;
                let rule_name = rule.to_string();
                quote!(check: Some(::weir_model::rule::#rule), rule: Some(#rule_name))
            }
            "extension_values" => {
                let values: ExprArray = meta.value()?.parse()?;
                quote!(extension_values: &#values)
            }
            "check" => {
                let function: Path = meta.value()?.parse()?;
                let rule_name = function.segments.last().map(|last| last.ident.to_string());
                quote!(check: Some(#function), rule: Some(#rule_name))
            }
            "key_check" | "hint" => {
                let function: Path = meta.value()?.parse()?;
                quote!(#name: Some(#function))
            }
            _ => return Err(meta.error("no such field attribute")),
        };
        self.members.push(member);
        Ok(())
    }
}

/// The text of the doc comments, lines joined by spaces.
pub(crate) fn doc(attributes: &[Attribute]) -> String {
    let lines =
        attributes.iter().filter(|a| a.path().is_ident("doc")).filter_map(|attribute| {
            match &attribute.meta.require_name_value().ok()?.value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
                _ => None,
            }
        });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

fn literal(expression: &Expr) -> syn::Result<TokenStream> {
    let of = quote!(::weir_model::schema::Literal);
    Ok(match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => quote!(#of::Str(#text)),
        Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => quote!(#of::Bool(#value)),
        Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => quote!(#of::Int(#expression)),
        Expr::Lit(ExprLit { lit: Lit::Float(_), .. }) => quote!(#of::Float(#expression)),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match &**expr {
            Expr::Lit(ExprLit { lit: Lit::Float(_), .. }) => quote!(#of::Float(#expression)),
            _ => quote!(#of::Int(#expression)),
        },
        Expr::Array(_) => {
            let items = literals(expression)?;
            quote!(#of::List(&[#(#items),*]))
        }
        Expr::Block(block) => {
            let members = members(block)?;
            quote!(#of::Map(&[#(#members),*]))
        }
        other => {
            return Err(syn::Error::new_spanned(
                other,
                "expected a literal, [literals…] or { name = literal; … }",
            ));
        }
    })
}

/// `{ name = "latency"; sample_rate = 1 }`, a mapping in the shape of a block.
fn members(block: &ExprBlock) -> syn::Result<Vec<TokenStream>> {
    let member = |statement: &Stmt| match statement {
        Stmt::Expr(Expr::Assign(member), _) => match &*member.left {
            Expr::Path(name) => {
                let (name, value) = (name.path.require_ident()?.to_string(), literal(&member.right)?);
                Ok(quote!((#name, #value)))
            }
            other => Err(syn::Error::new_spanned(other, "expected a name")),
        },
        other => Err(syn::Error::new_spanned(other, "expected name = literal")),
    };
    block.block.stmts.iter().map(member).collect()
}

fn literals(expression: &Expr) -> syn::Result<Vec<TokenStream>> {
    match expression {
        Expr::Array(array) => array.elems.iter().map(literal).collect(),
        other => Err(syn::Error::new_spanned(other, "expected [literals…]")),
    }
}

fn number(expression: &Expr) -> syn::Result<TokenStream> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(value), .. }) => {
            let value: f64 = value.base10_parse()?;
            Ok(quote!(#value))
        }
        Expr::Lit(_) | Expr::Unary(_) => Ok(quote!(#expression as f64)),
        other => Err(syn::Error::new_spanned(other, "expected a number")),
    }
}

fn pair(expression: &Expr) -> syn::Result<TokenStream> {
    match expression {
        Expr::Array(array) if array.elems.len() == 2 => {
            let (low, high) = (number(&array.elems[0])?, number(&array.elems[1])?);
            Ok(quote!((#low, #high)))
        }
        other => Err(syn::Error::new_spanned(other, "expected [lowest, highest]")),
    }
}
