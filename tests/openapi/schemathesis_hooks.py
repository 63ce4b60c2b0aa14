"""What schemathesis lacks to speak with Chronos: bodies of lines."""

import json

import schemathesis

LINES = "application/x-ndjson"


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """A body of lines is a list of what a line may be."""
    for path in raw_schema["paths"].values():
        for operation in path.values():
            if not isinstance(operation, dict):
                continue
            body = operation.get("requestBody", {}).get("content", {}).get(LINES)
            if body and "x-line" in body:
                body["schema"] = {"type": "array", "items": body["x-line"], "maxItems": 8}
                body["example"] = [json.loads(line) for line in body["example"].splitlines()]


@schemathesis.serializer(LINES)
def lines(context, value):
    """A list is a body of a line each; anything else is one line."""
    if isinstance(value, bytes):
        return value
    documents = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(document) for document in documents).encode()
