"""Programs that speak the Agent Client Protocol and are known by name: one value each, and a line in `ACP_AGENTS`.

What stands here was seen with the program, or is in its maker's documents; what nobody knows is left out:

    version     empty where it is not known that the program tells one
    keys        a credential that is enough by itself; `variables` are what else is its own. A program that nobody knows
                any of is told by `pass_env`
    reads       what of a repository it reads; none can be told over the protocol to leave it out, so the agent is not
                started in a folder that holds some (of `obeys`, where that is less) unless the user has agreed to it
    hosts       what it has to reach; empty where nobody knows: then it reaches whatever is public
    droppings   what it leaves for itself in a worktree
"""

from orchard.agents.facts.known import AcpKnown

CURSOR = AcpKnown(
    name="cursor",
    vendor="Cursor",
    program="cursor-agent",
    other_programs=("agent",),
    arguments=("acp",),
    install="curl https://cursor.com/install -fsS | bash",
    login="Run 'cursor-agent login', or set CURSOR_API_KEY.",
    keys=("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN"),
    hosts=("*.cursor.sh", "*.cursorapi.com"),
    reads=(".cursor",),
)

KIRO = AcpKnown(
    name="kiro",
    vendor="AWS",
    program="kiro-cli",
    arguments=("acp",),
    install="curl -fsSL https://cli.kiro.dev/install | bash",
    login="Run 'kiro-cli' once and log in, or set KIRO_API_KEY.",
    keys=("KIRO_API_KEY",),
    folder=("", ".kiro"),
    version=(),
    reads=(".kiro",),
)

DROID = AcpKnown(
    name="droid",
    vendor="Factory",
    program="droid",
    arguments=("exec", "--output-format", "acp"),
    install="npm install -g droid",
    login="Run 'droid' once and log in, or set FACTORY_API_KEY.",
    keys=("FACTORY_API_KEY",),
    folder=("", ".factory"),
    version=(),
    env={"DROID_DISABLE_AUTO_UPDATE": "true", "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false"},
    reads=(".factory",),
)

KIMI = AcpKnown(
    name="kimi",
    vendor="Moonshot AI",
    program="kimi",
    arguments=("acp",),
    install="npm install -g @moonshot-ai/kimi-code",
    login="Run 'kimi' once and use /login.",
    # It takes its login from its own folder, or a whole model from these: one of them alone is none.
    variables=(
        "KIMI_CODE_HOME",
        "KIMI_MODEL_NAME",
        "KIMI_MODEL_API_KEY",
        "KIMI_MODEL_PROVIDER_TYPE",
        "KIMI_MODEL_BASE_URL",
        "KIMI_CODE_BASE_URL",
        "KIMI_CODE_OAUTH_HOST",
        "KIMI_CODE_CUSTOM_HEADERS",
    ),
    folder=("KIMI_CODE_HOME", ".kimi-code"),
    reads=(".kimi-code",),
)

GOOSE = AcpKnown(
    name="goose",
    vendor="AAIF",
    program="goose",
    arguments=("acp",),
    install="brew install block-goose-cli",
    login="Run 'goose configure', or set GOOSE_PROVIDER and the key of that provider.",
    # The key of a provider is a login only where that provider is chosen.
    variables=(
        "GOOSE_PROVIDER",
        "GOOSE_MODEL",
        "GOOSE_MODE",
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "OPENAI_HOST",
        "OPENAI_BASE_PATH",
        "OPENROUTER_API_KEY",
        "GOOGLE_API_KEY",
        "GROQ_API_KEY",
        "DATABRICKS_HOST",
        "DATABRICKS_TOKEN",
        "OLLAMA_HOST",
    ),
    folder=("", ".config/goose"),
    droppings=(".goose/",),
)

CLINE = AcpKnown(
    name="cline",
    vendor="Cline",
    program="cline",
    arguments=("--acp",),
    install="npm install -g cline",
    login="Run 'cline auth'.",
    reads=(".clinerules",),
    obeys=(".clinerules/hooks",),
    droppings=(".cline/",),
)

VIBE = AcpKnown(
    name="vibe",
    vendor="Mistral AI",
    program="vibe-acp",
    install="uv tool install mistral-vibe",
    login="Run 'vibe' once, or set MISTRAL_API_KEY.",
    keys=("MISTRAL_API_KEY",),
    folder=("", ".vibe"),
    settings=((".vibe/.env", "_KEY"),),
    hosts=("api.mistral.ai",),
    version=(),
    reads=(".vibe",),
)

OPENHANDS = AcpKnown(
    name="openhands",
    vendor="OpenHands",
    program="openhands",
    arguments=("acp", "--always-approve"),
    install="uv tool install openhands --python 3.12",
    login="Run 'openhands' once and choose a model.",
    # It reads these only with `args = ["--override-with-envs"]`.
    variables=("LLM_API_KEY", "LLM_MODEL", "LLM_BASE_URL"),
    folder=("", ".openhands"),
    reads=(".openhands",),
)

AUGGIE = AcpKnown(
    name="auggie",
    vendor="Augment Code",
    program="auggie",
    arguments=("--acp",),
    install="npm install -g @augmentcode/auggie",
    login="Run 'auggie login', or set AUGMENT_SESSION_AUTH.",
    keys=("AUGMENT_SESSION_AUTH",),
    folder=("", ".augment"),
    files=("session.json",),
    hosts=("auth.augmentcode.com", "*.api.augmentcode.com"),
    version=(),
    env={"AUGMENT_DISABLE_AUTO_UPDATE": "1"},
    reads=(".augment",),
)

QODER = AcpKnown(
    name="qoder",
    vendor="Qoder",
    program="qodercli",
    arguments=("--acp",),
    install="npm install -g @qoder-ai/qodercli",
    login="Run 'qodercli' once and use /login, or set QODER_PERSONAL_ACCESS_TOKEN.",
    keys=("QODER_PERSONAL_ACCESS_TOKEN",),
    variables=("QODER_CONFIG_DIR",),
    folder=("QODER_CONFIG_DIR", ".qoder"),
    reads=(".qoder",),
)

FAST_AGENT = AcpKnown(
    name="fast-agent",
    vendor="evalstate",
    program="fast-agent-acp",
    install="uv tool install fast-agent-mcp",
    login="Name the key of your model's provider in 'pass_env' of [agents.fast-agent].",
    version=(),
    reads=("fastagent.config.yaml", "fastagent.secrets.yaml", ".fast-agent/fastagent.config.yaml"),
    droppings=(".fast-agent/", "fastagent.jsonl"),
)
