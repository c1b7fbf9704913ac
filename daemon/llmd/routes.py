"""The table of all endpoints. The HTTP routes and /openapi.json are made from this table. Each path is served with and
without the prefix /v1.
"""

from __future__ import annotations

from aiohttp import web

from .dialects.anthropic import messages
from .dialects.anthropic import wire as anthropic
from .dialects.anthropic.writer import ENVELOPE as ANTHROPIC
from .dialects.anthropic.writer import MessageWriter
from .dialects.llamacpp import endpoints as native
from .dialects.llamacpp import server as native_server
from .dialects.llamacpp import wire as native_wire
from .dialects.ollama import endpoints as ollama
from .dialects.ollama import models as ollama_models
from .dialects.ollama import pull as ollama_pull
from .dialects.ollama import wire as ollama_wire
from .dialects.ollama.writer import ENVELOPE as OLLAMA
from .dialects.openai import endpoints as completions
from .dialects.openai import wire as openai
from .dialects.responses import endpoints as response
from .dialects.responses import store as response_store
from .dialects.responses import wire as responses
from .dialects.responses.writer import ENVELOPE as RESPONSES
from .http import framing
from .http.context import ENVELOPES, OPENAPI, OPERATIONS, PUBLIC, WAITING
from .http.endpoints import (
    explain,
    feed,
    feed_wire,
    health,
    health_wire,
    models,
    openapi,
    page,
    session_verbs,
    sessions,
    text,
    wire,
)
from .http.endpoints.endpoint import CHAT, TEXT_COMPLETION, Endpoint
from .http.endpoints.failures import COMMAND, EMBEDS, GENERATES, LISTS, RENDERS, RESPONSE, SESSION, STORE, TEXT
from .http.receive import leave_expectation

ENDPOINTS = (
    Endpoint("POST", "/v1/chat/completions", completions.chat_completions,
             "Answer a conversation; the answer can be streamed", openai.ChatCompletion, openai.ChatCompletionRequest,
             generates=CHAT, failures=GENERATES),
    Endpoint("POST", "/v1/completions", completions.completions, "Continue a text; the answer can be streamed",
             openai.Completion, openai.CompletionRequest, generates=TEXT_COMPLETION, failures=GENERATES),
    Endpoint("POST", "/v1/messages", messages.create_message, "Answer a conversation with Anthropic's Messages API",
             anthropic.MessageAnswer, anthropic.MessagesRequest, generates=CHAT, framing=MessageWriter.framing,
             envelope=ANTHROPIC, failures=GENERATES),
    Endpoint("POST", "/v1/messages/count_tokens", messages.count_message_tokens,
             "Count the prompt tokens of a request to /v1/messages", anthropic.TokenCount,
             anthropic.CountTokensRequest, envelope=ANTHROPIC, failures=RENDERS),
    Endpoint("POST", "/v1/responses", response.create_response, "Answer a conversation with OpenAI's Responses API",
             responses.Response, responses.ResponseRequest, generates=CHAT, envelope=RESPONSES,
             failures=(*GENERATES, *RESPONSE, "previous_response_not_found")),
    Endpoint("POST", "/v1/responses/input_tokens", response.count_input_tokens,
             "Count the prompt tokens of a request to /v1/responses",
             responses.InputTokens, responses.ResponseRequest,
             failures=(*RENDERS, *RESPONSE, "previous_response_not_found")),
    Endpoint("GET", "/v1/responses/{id}", response.show_response, "Get a stored response", responses.Response,
             failures=(*RESPONSE, "unsupported_parameter")),
    Endpoint("DELETE", "/v1/responses/{id}", response.delete_response, "Delete a stored response",
             responses.ResponseDeleted, failures=RESPONSE),
    Endpoint("GET", "/v1/responses/{id}/input_items", response.list_input_items,
             "List the input items of a stored response",
             responses.InputItemList, failures=(*RESPONSE, "invalid_value")),
    Endpoint("POST", "/v1/embeddings", completions.embeddings,
             "Embed texts with OpenAI's API, if the model supports embeddings",
             openai.Embeddings, openai.EmbeddingsRequest, failures=EMBEDS),
    Endpoint("POST", "/embedding", native.embedding, "Embed texts with llama.cpp's API",
             list[native_wire.PlainEmbedding], native_wire.EmbeddingRequest, failures=EMBEDS),
    Endpoint("POST", "/completion", native.completion, "Continue a text with llama.cpp's API",
             native_wire.NativeCompletion, native_wire.NativeCompletionRequest, generates=TEXT_COMPLETION,
             failures=GENERATES),
    Endpoint("POST", "/infill", native.infill, "Fill in the middle of a text, if the model supports it",
             native_wire.NativeCompletion, native_wire.InfillRequest, generates=TEXT_COMPLETION,
             failures=GENERATES),
    Endpoint("POST", "/api/chat", ollama.chat, "Answer a conversation with Ollama's API",
             ollama_wire.OllamaChat, ollama_wire.OllamaChatRequest, generates=CHAT, framing=framing.LINES,
             envelope=OLLAMA, failures=GENERATES),
    Endpoint("POST", "/api/generate", ollama.generate, "Answer a prompt with Ollama's API",
             ollama_wire.OllamaGenerated, ollama_wire.OllamaGenerateRequest, generates=TEXT_COMPLETION,
             framing=framing.LINES, envelope=OLLAMA, failures=GENERATES),
    Endpoint("POST", "/api/embed", ollama.embed_texts, "Embed texts with Ollama's API",
             ollama_wire.OllamaEmbeddings, ollama_wire.EmbedRequest, envelope=OLLAMA, failures=EMBEDS),
    Endpoint("POST", "/api/embeddings", ollama.embed_prompt, "Embed one text with the older endpoint of Ollama's API",
             ollama_wire.OllamaEmbedding, ollama_wire.EmbedPromptRequest, envelope=OLLAMA, failures=EMBEDS),
    Endpoint("GET", "/api/version", ollama_models.version, "Get the version of Ollama's API that llmd supports",
             ollama_wire.OllamaVersion, envelope=OLLAMA),
    Endpoint("GET", "/api/tags", ollama_models.tags, "List the models with Ollama's API, the served one first",
             ollama_wire.ListedModels, envelope=OLLAMA),
    Endpoint("GET", "/api/ps", ollama_models.running, "List the loaded model with Ollama's API",
             ollama_wire.RunningModels, envelope=OLLAMA),
    Endpoint("POST", "/api/show", ollama_models.show, "Get details of the model with Ollama's API",
             ollama_wire.ShownModel,
             ollama_wire.ShowRequest, envelope=OLLAMA),
    Endpoint("POST", "/api/pull", ollama_pull.pull_model,
             "Download a model to the cache with Ollama's API, for administrators",
             ollama_wire.PullProgress, ollama_wire.PullRequest, envelope=OLLAMA,
             failures=("admin_required", "model_unavailable")),
    Endpoint("GET", "/v1/models", models.list_models,
             "List the model that llmd serves and, for administrators, the other models on this machine",
             wire.ModelList),
    Endpoint("GET", "/v1/models/{id}", models.show_model, "Get the model that llmd serves, whatever the id is",
             wire.Model, id_spans_slashes=True),
    Endpoint("GET", "/v1/sessions", sessions.list_sessions, "List sessions, the most recently used first",
             wire.SessionList, failures=LISTS),
    Endpoint("GET", "/v1/sessions/{id}", sessions.show_session, "Get one session", wire.Session, failures=SESSION),
    Endpoint("DELETE", "/v1/sessions/{id}", sessions.delete_session,
             "Delete a session: cancel its requests and free its slots", wire.SessionDeleted, failures=COMMAND),
    Endpoint("POST", "/v1/sessions/{id}/reset", sessions.reset_session,
             "Clear the tokens of a session, but keep the session; its requests are cancelled", wire.SessionReset,
             failures=COMMAND),
    Endpoint("POST", "/v1/sessions/{id}/fork", session_verbs.fork_session,
             "Make a new session with all tokens of this session, or with its first tokens", wire.Session,
             wire.ForkRequest, failures=(*COMMAND, "session_exists")),
    Endpoint("POST", "/v1/sessions/{id}/park", session_verbs.park_session,
             "Park a session: move it out of the model's memory until its next request", wire.Session,
             failures=COMMAND),
    Endpoint("POST", "/v1/sessions/{id}/pin", session_verbs.pin_session,
             "Pin a session, so that llmd never evicts it, or unpin it", wire.Session, wire.PinRequest,
             failures=(*COMMAND, "pins_exhausted")),
    Endpoint("POST", "/v1/sessions/{id}/rename", session_verbs.rename_session,
             "Rename a session", wire.Session, wire.RenameRequest, failures=(*COMMAND, "session_exists")),
    Endpoint("POST", "/v1/sessions/{id}/save", session_verbs.save_session,
             "Save a copy of a session under a name in the state directory", wire.SessionSaved, wire.SaveRequest,
             failures=(*STORE, "nothing_to_save", "saved_full")),
    Endpoint("POST", "/v1/sessions/{id}/load", session_verbs.load_session,
             "Replace the contents of this session with those of a saved session", wire.Session, wire.LoadRequest,
             failures=(*STORE, "admin_required", "context_length_exceeded", "session_exists", "snapshot_not_found",
                       "snapshot_refused")),
    Endpoint("GET", "/v1/sessions/{id}/explain", explain.explain_session,
             "Show which tokens each of the last turns of a session reused, and why it could not reuse more",
             wire.Explanation, failures=(*SESSION, *LISTS)),
    Endpoint("GET", "/v1/feed", feed.show_feed, "Watch the sessions: a stream of events with what has changed",
             feed_wire.FeedEvent, media="text/event-stream", failures=LISTS),
    Endpoint("GET", "/v1/saved", session_verbs.list_saved, "List saved sessions, the newest first", wire.SavedList,
             failures=("invalid_value",)),
    Endpoint("DELETE", "/v1/saved/{id}", session_verbs.delete_saved, "Delete a saved session", wire.SavedDeleted,
             failures=(*STORE, "admin_required", "invalid_value", "snapshot_not_found")),
    Endpoint("POST", "/tokenize", text.tokenize, "Convert a text to tokens", wire.Tokens, wire.TokenizeRequest,
             failures=TEXT),
    Endpoint("POST", "/detokenize", text.detokenize, "Convert tokens to a text", wire.DetokenizedText,
             wire.DetokenizeRequest,
             failures=TEXT),
    Endpoint("POST", "/apply-template", completions.apply_template, "Render a conversation as a prompt",
             wire.RenderedTemplate, openai.ChatCompletionRequest, failures=RENDERS),
    Endpoint("GET", "/props", native_server.props, "Get facts about the server with llama.cpp's API",
             native_wire.Props),
    Endpoint("GET", "/slots", native_server.slots, "List the slots of the model's memory with llama.cpp's API",
             list[native_wire.Slot], failures=LISTS),
    Endpoint("GET", "/live", health.live, "Check that the process is alive", health_wire.Liveness, is_public=True),
    Endpoint("GET", "/health", health.health, "Check that the model is loaded. If not, the status is 503",
             health_wire.Health, is_public=True, unready=health_wire.HealthErrorEnvelope),
    Endpoint("GET", "/ready", health.ready, "Check that llmd can serve requests. If not, the status is 503",
             health_wire.Readiness, is_public=True, unready=health_wire.Readiness),
    Endpoint("POST", "/v1/drain", health.drain,
             "Stop llmd as soon as the running answers have ended, for administrators; new requests are refused",
             health_wire.Readiness, failures=("admin_required",)),
    Endpoint("GET", "/metrics", health.metrics, "Get metrics in Prometheus' text format", None, media="text/plain"),
    Endpoint("GET", "/", page.greet,
             "Get the page, for browsers. Other clients get a line that says that the server runs", None,
             is_public=True, media="text/html", other_media="text/plain"),
    Endpoint("GET", "/page/{id}", page.show_file, "Get a script or style of the page", None, is_public=True,
             media="text/javascript"),
    Endpoint("GET", "/openapi.json", openapi.show_openapi, "Get the OpenAPI description of all endpoints", None,
             is_public=True),
)  # fmt: skip


def add_routes(app: web.Application) -> None:
    for endpoint in ENDPOINTS:
        for path in endpoint.routes:
            methods = (endpoint.method, "HEAD") if endpoint.method == "GET" else (endpoint.method,)
            for method in methods:
                app.router.add_route(method, path, endpoint.handler, expect_handler=leave_expectation)
    for method, path in ollama_models.CHANGES:
        app.router.add_route(method, path, ollama_models.refuse_change, expect_handler=leave_expectation)
    app[feed.FEED] = feed.Feed()
    app[response_store.STORE] = response_store.ResponseStore()
    app[PUBLIC] = frozenset(endpoint.spellings[0] for endpoint in ENDPOINTS if endpoint.is_public)
    waiting = filter(lambda endpoint: endpoint.waits_for_model, ENDPOINTS)
    app[WAITING] = {endpoint.spellings[0]: endpoint.framing if endpoint.generates else None for endpoint in waiting}
    app[OPERATIONS] = {endpoint.spellings[0]: endpoint.generates for endpoint in ENDPOINTS if endpoint.generates}
    app[ENVELOPES] = {endpoint.spellings[0]: endpoint.envelope for endpoint in ENDPOINTS}
    app[OPENAPI] = openapi.document(ENDPOINTS)
