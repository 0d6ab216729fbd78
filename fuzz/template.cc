#include "fuzz.h"
#include "plait/tokens/chat_template.h"

namespace plait {

namespace {

void run(std::string_view input) {
  if (input.size() > 20'000) return;
  TemplateInputs in;
  in.messages = TemplateInputs::Json::parse(
      R"([{"role": "system", "content": "s\n"}, {"role": "user", "content": "é <b>"},
          {"role": "assistant", "content": [{"type": "text", "text": "ok"}],
           "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]}])");
  in.tools = TemplateInputs::Json::parse(R"([{"function": {"name": "f", "parameters": {}}}])");
  in.more = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  in.now = 0;
  TemplateLimits limits;
  limits.steps = 20'000;
  limits.output_bytes = 1 << 16;
  ChatTemplate::parse(input, "template").render(in, limits);
}

std::vector<std::string> seeds() {
  return {
      "{{ bos_token }}{% for m in messages %}{{ m.role | upper ~ ': ' }}"
      "{% if m.content is string %}{{ m['content'] | trim }}{% else %}"
      "{{ m.content | map(attribute='text') | join(', ') }}{% endif %}\n{% endfor %}",
      "{%- macro f(x, y=2) -%}{{ x * y }}{%- endmacro -%}"
      "{%- set ns = namespace(n=0, all=[]) -%}\n"
      "{%- for i in range(5)[::-1] if i is odd -%}{%- set ns.n = ns.n + i -%}"
      "{%- set ns.all = ns.all + [f(i, y=3)] -%}{% if loop.last %}{% break %}{% endif %}"
      "{%- else -%}none{%- endfor -%}{{ ns.n // 2 }}{{ ns.all }}",
      "{{ tools | tojson(indent=2) }}{{ messages[-1].tool_calls[0].function.arguments | items "
      "| list }}{{ 'a,b'.split(',')[0].replace('a', 'xyz') }}{{ 'a' if 1 < 2 <= 3 else none }}",
      "{% set t %}a{# c #}{% raw %}{{ }}{% endraw %}{% endset %}{% filter upper %}{{ t }}"
      "{% endfilter %}{% generation %}x{% endgeneration %}{% with a = {'k': (1, 2)} %}"
      "{% for k, (p, q) in a.items() %}{{ '%s-%05.2f' % (k, p / q) }}{% endfor %}{% endwith %}",
      "{% macro c() %}<{{ caller(1) }}>{% endmacro %}{% call(v) c() %}{{ v ~ '{}'.format(v) }}"
      "{% endcall %}{{ strftime_now('%d %b %Y') }}{{ ['b', 'A'] | sort | unique | list }}"
      "{{ dict(a=1, **{'b': 2}) | dictsort | selectattr(1, '>', 1) | first }}"};
}

}  // namespace

FuzzTarget fuzz_template() { return {"template", run, seeds}; }

}  // namespace plait
