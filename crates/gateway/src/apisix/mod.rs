//! The objects of APISIX, and the entities that follow from each. Pure: [`standalone`] reads an `apisix.yaml`, and the
//! Admin API of APISIX is beside this, in `apisix_admin`.
pub(crate) mod object;
pub(crate) mod standalone;
pub(crate) mod translate;
