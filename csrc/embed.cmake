# Writes texts as one C++ source file:
#   cmake -DFOLDER=csrc/forge "-DNAMES=prompts/a.mustache;knowledge/b.md" -DHEADER=forge/embedded.h -DOUTPUT=texts.cc -P embed.cmake
# It defines what HEADER declares: EmbeddedTexts(), or with -DCONSTANT=kName the one text as a const char*.
set(source "// Made by csrc/embed.cmake.\n#include \"${HEADER}\"\n\nnamespace cudaforge {\n\n")
if(CONSTANT)
  file(READ ${FOLDER}/${NAMES} text)
  string(APPEND source "const char* const ${CONSTANT} = R\"cudaforge(${text})cudaforge\";\n\n")
else()
  string(APPEND source "namespace {\n\nconstexpr EmbeddedText kTexts[] = {\n")
  foreach(name IN LISTS NAMES)
    file(READ ${FOLDER}/${name} text)
    string(APPEND source "    {\"${name}\", R\"cudaforge(${text})cudaforge\"},\n")
  endforeach()
  string(APPEND source "};\n\n}  // namespace\n\n")
  string(APPEND source "std::span<const EmbeddedText> EmbeddedTexts() { return kTexts; }\n\n")
endif()
file(WRITE ${OUTPUT} "${source}}  // namespace cudaforge\n")
