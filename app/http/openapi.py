"""Describes the HTTP API (OpenAPI 3.1).

`describes` notes at a view what its code does not say. The rest is derived from what the server
runs: paths from the routes, bodies and answers from the classes of the documents, problems from the
classes of the errors. Their docstrings are the descriptions:

- of a view: the first paragraph is the summary of the operation, the rest its description;
- of a document and its members; an indented section `Example:` has one in JSON;
- of an error: the first paragraph says what its code means.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from flask import Flask
from msgspec import Struct, UnsetType
from msgspec.structs import fields
from werkzeug import exceptions
from werkzeug.routing import Rule

from app.core import errors
from app.core.access import Action
from app.core.errors import UploadError
from app.core.json_types import Id, keywords
from app.http.access import AccessRule, rules_of
from app.http.bodies import BODY
from app.http.problems import Problem, ProblemDocument
from app.ingest.slots import SAFE_METHODS

View = TypeVar("View", bound=Callable[..., Any])

Error = type[UploadError] | type[exceptions.HTTPException]

JSON, PROBLEM_JSON = "application/json", "application/problem+json"

_OPERATION = "operation"

# ---- at the views --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a request; `schema` is its type."""

    name: str
    place: str
    description: str
    schema: Any


def query(name: str, description: str = "", schema: Any = str, **more: Any) -> Parameter:
    """A parameter in the query; `more` are keywords of JSON Schema."""
    return Parameter(name, "query", description, Annotated[schema, keywords(**more)])


def header(name: str, description: str, schema: Any = str) -> Parameter:
    """A header of the request."""
    return Parameter(name, "header", description, schema)


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """A response that is no problem document.

    `content` is the type of its JSON, or types by media type; `headers` are names in `HEADERS`.
    """

    description: str
    content: Any = None
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """What `describes` notes at a view."""

    id: str
    responses: Mapping[int, ResponseSpec | type | str]
    problems: tuple[Error, ...]
    parameters: tuple[Parameter, ...]
    bodies: Mapping[str, Any]
    problem: type
    head: str


def describes(
    operation_id: str,
    responses: Mapping[int, ResponseSpec | type | str],
    *problems: Error,
    parameters: tuple[Parameter, ...] = (),
    bodies: Mapping[str, Any] = {},
    problem: type = ProblemDocument,
    head: str = "",
) -> Callable[[View], View]:
    """Describes the operation of a view; costs a request nothing.

    A response given as a type is JSON with the description of that type; a text has no content.
    `problems` are those that do not follow from the route, the access rule or the body. `bodies`
    are the types of a body that the view reads itself instead of by `takes`, by media type;
    `problem` is the type of the problem documents, and `head` the id of the operation HEAD.
    """
    operation = Operation(operation_id, responses, problems, parameters, bodies, problem, head)

    def note(view: View) -> View:
        setattr(view, _OPERATION, operation)
        return view

    return note


WANT_REPR_DIGEST = header(
    "Want-Repr-Digest",
    "Which checksum of a file is wanted (RFC 9530), such as `sha-256=1`, which is then computed "
    "soon, or `crc32c=1` for the receipts of a batch.",
)

HEADERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "X-Request-ID": (
        "Names the request in the log; the client's own if it sent one.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    ),
    "Location": (
        "URL of the upload.",
        {"type": "string", "pattern": "^(https?:/)?/(.+/)?api/uploads/[0-9a-f]{32}$"},
    ),
    "Retry-After": (
        "Seconds to wait before the next attempt.",
        {"type": "integer", "minimum": 0},
    ),
    "ETag": (
        "A strong tag: the id and the content type. The bytes under an id never change.",
        {"type": "string", "pattern": '^"[0-9a-f]{32}-[a-z]+/[a-z0-9.+-]+"$'},
    ),
    "Last-Modified": ("When the file was published. Left out of a 304.", {"type": "string"}),
    "Accept-Ranges": ("Ranges are in bytes.", {"const": "bytes"}),
    "Content-Range": (
        "Both ends inclusive, as in `bytes 0-9/100`.",
        {"type": "string", "pattern": "^bytes [0-9]+-[0-9]+/[0-9]+$"},
    ),
    "Content-Disposition": (
        "With the file's name. `inline` for what a browser may play, otherwise `attachment`.",
        {"type": "string", "pattern": "^(inline|attachment); filename="},
    ),
}
"""Headers of responses, each with its description and schema."""

_OPTIONAL_HEADERS = {"Retry-After", "Last-Modified"}

# ---- the document --------------------------------------------------------------------------------

_HEIGHT = keywords(
    minimum=0,
    maximum=100_000,
    description="Pixels of the picture's shorter side, one of `playback.renditions`.",
)

_PATH_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("upload_id", "link_id", "person_id", "key_id"), Id),
    "project_id": Annotated[str, keywords(pattern="^[a-z0-9]{1,32}$")],
    "height": Annotated[int, _HEIGHT],
    "ending": Literal["csv", "jsonl"],
}
"""Types of parameters in paths; any other is a string."""

_OF_PATHS: Mapping[str, tuple[Error, ...]] = {
    "upload_id": (errors.UploadNotFound, errors.UploadGone),
    "link_id": (errors.LinkNotFound,),
    **dict.fromkeys(("project_id", "person_id", "key_id", "webhook_id"), (errors.EntryNotFound,)),
}
"""Errors of what a parameter in the path names."""

_OF_ALL = (errors.StorageFailed, exceptions.InternalServerError)
_OF_CALLERS = (errors.NotSignedIn, errors.NotAllowed, errors.NoProject)
_OF_BODIES = (errors.InvalidRequest, errors.BodyTruncated, errors.BodyStalled, errors.TooLarge)

_HTTP_ERRORS: Mapping[Error, str] = {
    exceptions.Forbidden: "A page of another site sent the request.",
    exceptions.NotFound: "There is nothing at this path.",
    exceptions.PreconditionFailed: "`If-Match` or `If-Unmodified-Since` does not hold.",
    exceptions.RequestedRangeNotSatisfiable: "No byte of the file is in the range.",
    exceptions.InternalServerError: "A bug in the server.",
}
"""What Werkzeug's errors mean here."""

_PROJECT = query("project", "The id of a project, for people who are in several.")
_OF_MANAGERS = {Action.MANAGE, Action.AUDIT}
"""Actions in a project that the query may name; for others, only our pages do that."""


def describe(app: Flask, tags: Mapping[str, tuple[str, set[str]]]) -> dict[str, Any]:
    """The members `tags`, `paths` and `components`, with every view that has a description.

    `tags` has the description of each, and the blueprints of its operations. Takes about 0.3 s.
    """
    schemas, rules = _Schemas(), rules_of(app)
    tag_of = {blueprint: tag for tag, (_, blueprints) in tags.items() for blueprint in blueprints}
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule):
        view = app.view_functions[rule.endpoint]
        operation: Operation | None = getattr(view, _OPERATION, None)
        if operation is not None:
            tag = tag_of[rule.endpoint.partition(".")[0]]
            route = _Route(rule, view, operation, rules[rule.endpoint], schemas)
            for method, values in route.operations():
                paths[route.path][method] = {"tags": [tag], **values}
    headers = {
        name: {"description": text, "required": name not in _OPTIONAL_HEADERS, "schema": schema}
        for name, (text, schema) in HEADERS.items()
    }
    return {
        "tags": [{"name": name, "description": text} for name, (text, _) in tags.items()],
        "paths": paths,
        "components": {"headers": headers, "schemas": schemas.components},
    }


@dataclass(frozen=True, slots=True)
class _Route:
    """One route, with what its view says of itself."""

    rule: Rule
    view: Callable[..., Any]
    operation: Operation
    access: AccessRule
    schemas: _Schemas

    @property
    def path(self) -> str:
        return re.sub(r"<(?:int:)?(\w+)>", r"{\1}", self.rule.rule)

    def operations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The methods in lower case, each with its operation object."""
        for method in sorted((self.rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield method.lower(), self._operation(method)
        if self.operation.head:
            yield "head", self._head()

    def _operation(self, method: str) -> dict[str, Any]:
        summary, description = _paragraphs(self.view)
        in_path = [
            Parameter(name, "path", "", _PATH_TYPES.get(name, str)) for name in self._names_in_path
        ]
        project = [_PROJECT] if self._chooses_project else []
        parameters = [
            {
                "name": parameter.name,
                "in": parameter.place,
                **({"required": True} if parameter.place == "path" else {}),
                **_described(parameter.description),
                "schema": self.schemas.of(parameter.schema),
            }
            for parameter in (*in_path, *project, *self.operation.parameters)
        ]
        body = self._content(self._bodies)
        responses = {**self._problems(method), **self._responses()}
        return {
            "operationId": self.operation.id,
            "summary": summary.removesuffix("."),
            **_described(description),
            **({"parameters": parameters} if parameters else {}),
            **({"requestBody": {"required": True, "content": body}} if body else {}),
            "responses": dict(sorted(responses.items())),
        }

    def _head(self) -> dict[str, Any]:
        """HEAD: the headers that GET has without a Range."""
        get, responses = self._operation("GET"), {}
        for status, response in get["responses"].items():
            if status not in {"206", "416"}:
                is_problem = PROBLEM_JSON in response.pop("content", {})
                text = "As for GET, without the problem document." if is_problem else ""
                responses[status] = {**response, **_described(text)}
        return {
            **get,
            "operationId": self.operation.head,
            "summary": f"{get['summary']}: the headers alone",
            "description": "As GET answers without `Range` and `If-Range`.",
            "parameters": [each for each in get["parameters"] if "Range" not in each["name"]],
            "responses": responses,
        }

    @property
    def _names_in_path(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def _chooses_project(self) -> bool:
        return self.access.action in _OF_MANAGERS and "project_id" not in self._names_in_path

    @property
    def _bodies(self) -> dict[str, Any]:
        """The types of the body, by media type."""
        kind = getattr(self.view, BODY, None)
        return {JSON: kind} if kind else dict(self.operation.bodies)

    def _content(self, types: Mapping[str, Any]) -> dict[str, Any]:
        return {name: {"schema": self.schemas.of(hint)} for name, hint in types.items()}

    def _responses(self) -> dict[str, Any]:
        responses = {}
        for status, given in self.operation.responses.items():
            if isinstance(given, ResponseSpec):
                response = given
            elif isinstance(given, str):
                response = ResponseSpec(given)
            else:
                response = ResponseSpec(_paragraphs(given)[0], given)
            types = response.content
            if types is not None and not isinstance(types, Mapping):
                types = {JSON: types}
            responses[str(status)] = {
                "description": response.description,
                "headers": _headers(*response.headers),
                **({"content": self._content(types)} if types else {}),
            }
        return responses

    def _problems(self, method: str) -> dict[str, Any]:
        meanings: dict[int, dict[str, str]] = defaultdict(dict)  # By status, then by code.
        for error in self._errors(method):
            if issubclass(error, UploadError):
                meanings[error.status_hint][error.code] = _paragraphs(error)[0]
            else:
                problem = Problem.of_http(error())
                meanings[problem.status][problem.code] = _HTTP_ERRORS[error]
        problems = {}
        for status, found in meanings.items():
            lines = [f"`{code}`: {meaning}" for code, meaning in found.items()]
            listed = "\n".join(f"- {line}" for line in lines)
            problems[str(status)] = {
                "description": lines[0] if len(lines) == 1 else listed,
                "headers": _headers(*(["Retry-After"] if status in {429, 503} else [])),
                "content": self._content({PROBLEM_JSON: self.operation.problem}),
            }
        return problems

    def _errors(self, method: str) -> Iterator[Error]:
        yield from self.operation.problems
        if self._bodies:
            yield from _OF_BODIES
        for name in self._names_in_path:
            yield from (*_OF_PATHS.get(name, ()), exceptions.NotFound)
        if self._chooses_project:
            yield errors.EntryNotFound
        if self.access.action is not Action.VISIT:
            yield from _OF_CALLERS
        if method not in SAFE_METHODS:
            yield exceptions.Forbidden
        yield from _OF_ALL


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-ID", *names)}


def _described(description: str) -> dict[str, str]:
    return {"description": description} if description else {}


def _paragraphs(documented: type | Callable[..., Any]) -> tuple[str, str]:
    """The first paragraph of a docstring, as one line, and the rest."""
    first, _, rest = inspect.cleandoc(documented.__doc__ or "").partition("\n\n")
    return " ".join(first.split()), rest


# ---- schemas -------------------------------------------------------------------------------------

_SCALARS: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "format": "binary"},
    NoneType: {"type": "null"},
    Any: {},
}


class _Schemas:
    """JSON Schemas of types; those of classes are components, under their names.

    msgspec has a generator, too, but it drops the docstrings of members, and sorts the members of
    a TypedDict and of an Enum.
    """

    def __init__(self) -> None:
        self.components: dict[str, dict[str, Any]] = {}
        self._kinds: dict[str, type] = {}
        self._sources: dict[str, dict[str, ast.ClassDef]] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type, or a reference to it."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is None:
            return dict(_SCALARS[hint]) if hint in _SCALARS else self._reference(hint)
        if origin in {Union, UnionType}:
            options = [self.of(each) for each in arguments if each is not UnsetType]
            return options[0] if len(options) == 1 else {"anyOf": options}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is list:
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            values = self.of(arguments[1])
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        schema = self.of(arguments[0])
        for extra in getattr(hint, "__metadata__", ()):  # Annotated has some, NotRequired none.
            schema |= extra.schema
        return schema

    def _reference(self, kind: type) -> dict[str, Any]:
        name = kind.__name__.removesuffix("Document")
        if self._kinds.setdefault(name, kind) is not kind:
            raise TypeError(f"{kind} and {self._kinds[name]} have the same name in the API.")
        if name not in self.components:
            self.components[name] = {}  # Keeps its place in front of those it refers to.
            if issubclass(kind, Enum):
                texts = self._member_docstrings(kind)
                lines = [f"- `{one.value}`: {texts[one.name]}" for one in kind if one.name in texts]
                text = "\n\n".join([_paragraphs(kind)[0], *(["\n".join(lines)] if lines else [])])
                values = [one.value for one in kind]
                schema = {"description": text, "type": "string", "enum": values}
            else:
                schema = self._object(kind)
            self.components[name] = schema
        return {"$ref": f"#/components/schemas/{name}"}

    def _object(self, kind: type) -> dict[str, Any]:
        text, _, example = inspect.cleandoc(kind.__doc__ or "").partition("Example:\n")
        hints = get_type_hints(kind, include_extras=True)
        docstrings = self._member_docstrings(kind)
        properties = {
            name: {**self.of(hint), **_described(docstrings.get(name, ""))}
            for name, hint in hints.items()
            if get_origin(hint) is not ClassVar
        }
        required = [name for name in hints if get_origin(hints[name]) is not NotRequired]
        if issubclass(kind, Struct):  # What has a default may be left out of a body.
            required = [field.name for field in fields(kind) if field.required]
        return {
            **_described(text.strip()),
            "type": "object",
            "required": required,
            "properties": properties,
            **getattr(kind, "KEYWORDS", {}),
            **({"examples": [json.loads(example)]} if example else {}),
        }

    def _member_docstrings(self, kind: type) -> dict[str, str]:
        """The docstrings below the members of a class and of its bases; Python drops them."""
        module = sys.modules[kind.__module__]
        if module.__name__ not in self._sources:
            nodes = ast.parse(inspect.getsource(module)).body
            classes = {each.name: each for each in nodes if isinstance(each, ast.ClassDef)}
            self._sources[module.__name__] = classes
        node = self._sources[module.__name__].get(kind.__name__)
        texts: dict[str, str] = {}
        if node is not None:  # A call has made it otherwise, as `TypedDict(...)`.
            for base in (getattr(module, ast.unparse(each), object) for each in node.bases):
                if base.__module__.startswith("app."):
                    texts |= self._member_docstrings(base)
            texts |= _docstrings_in(node)
        return texts


def _docstrings_in(node: ast.ClassDef) -> dict[str, str]:
    return {
        ast.unparse(member.target if isinstance(member, ast.AnnAssign) else member.targets[0]): (
            inspect.cleandoc(str(ast.literal_eval(text.value)))
        )
        for member, text in pairwise(node.body)
        if isinstance(member, ast.AnnAssign | ast.Assign) and isinstance(text, ast.Expr)
    }
