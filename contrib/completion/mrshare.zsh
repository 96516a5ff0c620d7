#compdef mrshare mrshared
# zsh completion for mrshare(1) and mrshared(8): what their --help lists.
# SPDX-License-Identifier: BSD-2-Clause

local -a program=($words[1]) commands flags match
local help line value

if [[ $words[1]:t == mrshare ]] && ((CURRENT > 2)); then
    program+=($words[2])
    shift words
    ((CURRENT--))
fi
help=$(_call_program flags $program --help 2>/dev/null)

# What a flag does stands behind it, or in the next line.
for line in ${(f)help//$'\n        '/  }; do
    if [[ $line =~ '^  ([a-z]+) +(.*)$' && $match[1] != mrshare ]]; then
        commands+=("$match[1]:$match[2]")
    elif [[ $line =~ '^  (--[a-z-]+)(, -[a-z])?( ([^ ]+))? +(.*)$' ]]; then
        value=${match[4]//:/\\:}
        [[ $match[1] != --log-level ]] || value='error|warning|info|debug'
        case $value in
            '') ;;
            PATH* | FILE*) value=:$value:_files ;;
            [a-z\|]##) value=":value:(${value//|/ })" ;;
            *) value=":$value: " ;;
        esac
        flags+=("*$match[1][${match[5]//(#m)[\]\[:]/\\$MATCH}]$value")
    fi
done

if (($#commands)); then
    _describe command commands
else
    _arguments $flags '*:file:_files'
fi
