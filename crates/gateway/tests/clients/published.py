"""Whether a request is what a provider's own library could have sent, by the library's types."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union

from typing_extensions import Required, get_args, get_origin, get_type_hints, is_typeddict


def assert_published(body, kind):
    """Asserts that a body is of a type, with all members that it requires, and none that it does not know."""
    found = misfit(body, kind, kind.__name__)
    assert found is None, found


def assert_modelled(body, model):
    """Asserts that a body is of a model of pydantic, without members that it does not know."""
    model.model_validate(body)
    known = {name for field, info in model.model_fields.items() for name in (field, info.alias)}
    assert body.keys() <= known, body.keys() - known


def misfit(value, kind, where):
    """What is wrong with a value; none if it is of the type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Annotated, Required):
        return misfit(value, arguments[0], where)
    wrong = f"{where}: {value!r} is not {kind}"
    if origin is Union:
        found = [misfit(value, one, where) for one in arguments]
        return None if None in found else wrong
    if origin is Literal:
        return None if value in arguments else wrong
    if is_typeddict(kind):
        return misfit_of_members(value, kind, where) if isinstance(value, dict) else wrong
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            return wrong
        return first(misfit(value[name], arguments[1], f"{where}.{name}") for name in value)
    if origin is not None and issubclass(origin, Iterable):
        return first(misfit(item, arguments[0], where) for item in value) if isinstance(value, list) else wrong
    if kind in (object, Any) or kind is float and type(value) is int:
        return None
    return None if type(value) is kind else wrong


def misfit_of_members(value, kind, where):
    members = get_type_hints(kind, include_extras=True)
    required = {name for name, member in members.items() if get_origin(member) is Required}
    if missing := required - value.keys():
        return f"{where}: {missing} is missing"
    is_open = getattr(kind, "__pydantic_config__", {}).get("extra") == "allow"
    if unknown := value.keys() - members.keys():
        return None if is_open else f"{where}: {unknown} is unknown"
    return first(misfit(value[name], members[name], f"{where}.{name}") for name in value)


def first(found):
    return next((one for one in found if one is not None), None)
