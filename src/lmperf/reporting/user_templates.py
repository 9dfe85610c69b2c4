"""Check the user's own templates, before anything is rendered and at the start of a run.

Jinja drops what a template that extends another one has outside of blocks, and blocks that the
other one lacks, without a word. `{% call %}` outside of blocks is written above the page.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path

from jinja2 import Environment, TemplateNotFound, nodes

from lmperf.benchmarks import stems
from lmperf.errors import UserError, meant
from lmperf.evidence.store import file_digest
from lmperf.evidence.syntax import digest
from lmperf.workflow import TEMPLATES

SUFFIX = ".md.j2"
REPORT = "report"  # the template of the first page
GENERIC = "generic"  # the template of a benchmark that has none
# What a template extends, includes, imports or quotes, and the texts in it.
_USED = re.compile(r"\{%-?\s*(?:extends|include|import|from)\b(.*?)%\}", re.DOTALL)
_QUOTED = re.compile(r"\bsaid\(\s*[\"']([\w-]+)[\"']")
_TEXT = re.compile(r"[\"']([^\"']*)[\"']")
_QUESTION = re.compile(r"block question\b.*?endblock", re.DOTALL)
# What a template that extends another one may have outside of blocks: it writes no text.
_SILENT = (
    *(nodes.Extends, nodes.Block, nodes.Macro, nodes.Assign, nodes.AssignBlock),
    *(nodes.Import, nodes.FromImport, nodes.ExprStmt),
)
_REFERENCES = (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)


def pages_in(folder: Path) -> list[str]:
    """The names of the templates of pages in a folder.

    Hidden files are none: editors and file systems leave them there.
    """
    paths = folder.glob(f"*{SUFFIX}")
    return sorted(path.name.removesuffix(SUFFIX) for path in paths if not path.name.startswith("."))


def template_digests(own: Path | None) -> dict[str, str]:
    """Name of each page -> digest of the templates that it is made from, ours or the user's.

    The first page also names the titles of all others.
    """
    folders = [*([own] if own else []), TEMPLATES]
    paths = [(folder, path) for folder in folders[::-1] for path in sorted(folder.rglob("*.j2"))]
    every = {str(path.relative_to(folder)): path for folder, path in paths}
    every |= {f"lmperf/{name}": TEMPLATES / name for name in every if (TEMPLATES / name).is_file()}
    texts = {
        name: path.read_text(encoding="utf-8-sig", errors="replace") for name, path in every.items()
    }
    used = {name: _used_in(text, every) for name, text in texts.items()}
    files = {name: file_digest(path) for name, path in every.items()}
    questions = [_QUESTION.findall(text) for text in texts.values()]
    digests = {}
    for page in sorted({*stems(), *(name for folder in folders for name in pages_in(folder))}):
        reached, waiting = set(), [page + SUFFIX if page + SUFFIX in every else GENERIC + SUFFIX]
        while waiting:
            reached.add(name := waiting.pop())
            waiting += used[name] - reached
        more = questions if page == REPORT else []
        digests[page] = digest(repr([sorted((name, files[name]) for name in reached), more]))
    return digests


def _used_in(text: str, every: Collection[str]) -> set[str]:
    """The templates that a text names; all, if it computes a name."""
    names = [_TEXT.findall(tag) for tag in _USED.findall(text)]
    if not all(names) or not {name for tag in names for name in tag}.issubset(every):
        return {*every}
    quoted = {name + SUFFIX for name in _QUOTED.findall(text)}
    return quoted.intersection(every).union(*names)


def check(templates: Environment, own: Path) -> None:
    """Check the pages in a user's folder, what replaces templates of ours, and what they use.

    Raises:
        UserError: a name cannot be linked, a file is not UTF-8, what it extends or includes does
            not exist or is the template itself, or it has text or blocks that never appear.
        TemplateSyntaxError: a template cannot be compiled.
    """
    pages = pages_in(own)
    for name in pages:
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            right = re.sub(r"[^\w.-]+", "_", name).strip("_") + SUFFIX
            words = "links need a name of letters, digits, - and _; rename it to"
            raise UserError(f"{own / name}{SUFFIX}: {words} {right}")
    paths = (path.relative_to(TEMPLATES) for path in TEMPLATES.rglob("*.j2"))
    ours = (str(path) for path in paths if path.parts[0] != "scaffold")  # what `init` writes
    waiting = deque(dict.fromkeys([*(name + SUFFIX for name in pages), *ours]))
    seen = set()
    while waiting:
        name = waiting.popleft()
        is_users = (own / name).is_file() or name.removesuffix(SUFFIX) in pages
        if is_users and name not in seen:
            waiting += _checked(templates, own, name)
        seen.add(name)


def _checked(templates: Environment, own: Path, name: str) -> Iterator[str]:
    """Check one template of the user, and yield the names of those that it uses."""
    tree = _tree(templates, own, name)
    templates.compile(tree, name, str(own / name))
    for node in tree.find_all(_REFERENCES):
        used = getattr(node.template, "value", None)
        if not isinstance(used, str) or getattr(node, "ignore_missing", False):
            continue  # known only when it is rendered
        try:
            templates.loader.get_source(templates, used)
        except TemplateNotFound:
            raise _fault(own, name, node, f"there is no template {used}") from None
        yield used
    _check_child(templates, own, name, tree)


def _check_child(templates: Environment, own: Path, name: str, tree: nodes.Template) -> None:
    """Check what a template that extends another one has beside that."""
    parents = [*_parents(templates, own, name, tree)]
    if not parents:
        return
    blocks = [block.name for parent in parents for block in parent.find_all(nodes.Block)]
    for node in tree.body:
        if isinstance(node, nodes.Block) and node.name not in blocks:
            near = meant(node.name, blocks, "its blocks:")
            raise _fault(own, name, node, f"there is no block {node.name} to fill; {near}")
        for spoken in _spoken(node):
            words = "text outside of blocks appears nowhere; put it into one:"
            raise _fault(own, name, spoken, f"{words} {', '.join(dict.fromkeys(blocks))}")


def _parents(
    templates: Environment, own: Path, name: str, tree: nodes.Template
) -> Iterator[nodes.Template]:
    """Yield what a template extends, then what that extends, and so on.

    Raises:
        UserError: a template extends itself.
    """
    seen = [own / name]
    while (extends := tree.find(nodes.Extends)) and isinstance(extends.template, nodes.Const):
        parent = extends.template.value
        try:
            source, filename, _ = templates.loader.get_source(templates, parent)
        except TemplateNotFound:
            return  # the check of the template that names it says so
        if Path(filename) in seen:
            first = next(_tree(templates, own, name).find_all(nodes.Extends))
            ours = f"; that of lmperf is lmperf/{parent}" if (TEMPLATES / parent).is_file() else ""
            raise _fault(own, name, first, f"it extends itself{ours}")
        seen.append(Path(filename))
        tree = templates.parse(source, parent, filename)
        yield tree


def _spoken(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield the nodes outside of blocks that would write something."""
    if isinstance(node, nodes.Output):
        for part in node.nodes:
            if not isinstance(part, nodes.TemplateData):
                yield part
            elif text := part.data.strip():
                before = part.data.partition(text)[0]
                yield nodes.TemplateData(text, lineno=part.lineno + before.count("\n"))
    elif isinstance(node, nodes.If):
        for inner in (*node.body, *node.elif_, *node.else_):
            yield from _spoken(inner)
    elif not isinstance(node, _SILENT):
        yield node


def _tree(templates: Environment, own: Path, name: str) -> nodes.Template:
    path = own / name
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; restore or remove it") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: it is not in UTF-8; save it in UTF-8") from None
    return templates.parse(text, name, str(path))


def _fault(own: Path, name: str, node: nodes.Node, words: str) -> UserError:
    return UserError(f"{own / name}:{node.lineno}: {words}")
