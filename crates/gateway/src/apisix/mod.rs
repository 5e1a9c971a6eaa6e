//! The objects of APISIX, and their translation into entities. Pure: [`standalone`] reads an `apisix.yaml`; the Admin
//! API of APISIX is in `apisix_admin`.
pub(crate) mod object;
pub(crate) mod standalone;
pub(crate) mod translate;
